/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "common/changes.h"

#include "client/control.h"
#include "common/cli.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BUILD_WAIT_US (50 * 1000)
/* What is done by then needs no words. */
#define BUILD_SILENT 20
/* Without any progress: half an hour. */
#define BUILD_PATIENCE 36000
/* Pages in a row that come to no earlier time: damaged parts are passed over, but not for ever. */
#define STANDING_STILL 100

struct wb_change_walk {
    int dir_fd;
    struct wb_change_walk_options options;
    uint64_t cursor;
    size_t at;
    uint32_t left, still;
    bool begun, last, announced;
    uint32_t uid, gid, pid;
    char command[2048];
    struct wb_control request; /* and reply */
    char path[WB_CONTROL_PATH_MAX];
};

struct wb_change_walk *wb_change_walk_new(const struct wb_mount *mount, const char *path,
                                          const struct wb_change_walk_options *options)
{
    struct wb_change_walk *walk = g_new0(struct wb_change_walk, 1);

    walk->dir_fd = mount->root_fd;
    walk->options = *options;
    g_strlcpy(walk->path, path, sizeof(walk->path));
    return walk;
}

struct wb_change_walk *wb_change_walk_free(struct wb_change_walk *walk)
{
    g_free(walk);
    return NULL;
}

static void say_building(struct wb_change_walk *walk)
{
    if (!walk->announced || isatty(STDERR_FILENO))
        fprintf(stderr, "%s%s: building the list of all changes from the logs, once: %u %%%s",
                walk->announced ? "\r" : "", wb_cli_name(), (unsigned)(walk->request.cursor / 10),
                isatty(STDERR_FILENO) ? "" : "\n");
    walk->announced = true;
}

/* The daemon leaves out all other changes. If it is older, or a text too long, wb_change_walk_next does. */
static void ask(const struct wb_change_walk *walk, struct wb_control *request)
{
    struct wb_control_changes *asked = (struct wb_control_changes *)(void *)request->data;
    const char *const *commands = walk->options.commands;
    size_t used = 0;

    asked->flags = walk->options.by_user ? WB_CONTROL_CHANGES_BY_USER : 0;
    asked->uid = walk->options.uid;
    for (unsigned i = 0; commands && commands[i]; i++) {
        size_t size = strlen(commands[i]) + 1;

        if (size > WB_CONTROL_CHANGES_COMMANDS_MAX - 1 - used)
            return;
        memcpy(asked->commands + used, commands[i], size);
        used += size;
    }
    if (used > 0)
        asked->flags |= WB_CONTROL_CHANGES_BY_COMMAND;
}

static bool has_command(const struct wb_change_walk *walk)
{
    const char *const *commands = walk->options.commands;

    for (unsigned i = 0; commands && commands[i]; i++) {
        if (strstr(walk->command, commands[i]))
            return true;
    }
    return !commands;
}

static int fetch(struct wb_change_walk *walk)
{
    struct wb_control *request = &walk->request;
    uint64_t built = 0;
    unsigned since = 0;
    int r;

    for (unsigned waits = 0;; waits++) {
        r = wb_request_prepare(request, WB_CONTROL_CHANGES, walk->path);
        if (r < 0)
            return r;
        request->since = walk->options.since;
        request->until = walk->options.until;
        request->cursor = walk->cursor;
        ask(walk, request);
        r = wb_request_call(walk->dir_fd, request);
        if (r < 0)
            return r;
        if (!(request->flags & WB_CONTROL_CHANGES_BUILDING))
            break;
        if (walk->options.no_wait)
            return -EAGAIN;
        if (request->cursor != built)
            since = waits;
        else if (waits - since > BUILD_PATIENCE)
            return -ETIMEDOUT;
        built = request->cursor;
        if (waits >= BUILD_SILENT)
            say_building(walk);
        g_usleep(BUILD_WAIT_US);
        if (wb_cli_interrupted())
            return -EINTR;
    }
    if (walk->announced && isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K");
    walk->announced = false;
    walk->still = request->cursor == walk->cursor ? walk->still + 1 : 0;
    if (walk->still > STANDING_STILL)
        return -EPROTO;
    walk->cursor = request->cursor;
    walk->left = request->count;
    walk->at = 0;
    walk->last = !(request->flags & WB_CONTROL_CHANGES_MORE);
    return 0;
}

static const char *text(const struct wb_control_change *entry, uint16_t at)
{
    return at == 0 ? "" : entry->strings + at;
}

int wb_change_walk_next(struct wb_change_walk *walk, struct wb_change *ret)
{
    for (;;) {
        const struct wb_control_change *entry;

        while (walk->left == 0) {
            int r;

            if (walk->begun && walk->last)
                return 1;
            if (wb_cli_interrupted())
                return 1;
            r = fetch(walk);
            if (r < 0)
                return r;
            walk->begun = true;
        }
        entry = (const struct wb_control_change *)(const void *)(walk->request.data + walk->at);
        walk->at += entry->size;
        walk->left--;
        if (!(entry->flags & WB_CONTROL_CHANGE_SAME)) {
            walk->uid = entry->uid;
            walk->gid = entry->gid;
            walk->pid = entry->pid;
            g_strlcpy(walk->command, text(entry, entry->command), sizeof(walk->command));
        }
        if (!has_command(walk))
            continue;
        *ret = (struct wb_change){entry,
                               text(entry, entry->op_name),
                               text(entry, entry->path),
                               text(entry, entry->other),
                               text(entry, entry->detail),
                               walk->command,
                               walk->uid,
                               walk->gid,
                               walk->pid};
        return 0;
    }
}

struct wb_kept_change *wb_change_keep(const struct wb_change *change)
{
    size_t size = change->entry->size, command = strlen(change->command) + 1;
    struct wb_kept_change *kept = g_malloc(sizeof(*kept) + size + command);
    struct wb_control_change *entry = (struct wb_control_change *)(void *)kept->data;
    char *text_of_command = (char *)kept->data + size;

    memcpy(entry, change->entry, size);
    memcpy(text_of_command, change->command, command);
    kept->change = (struct wb_change){entry,
                                   text(entry, entry->op_name),
                                   text(entry, entry->path),
                                   text(entry, entry->other),
                                   text(entry, entry->detail),
                                   text_of_command,
                                   change->uid,
                                   change->gid,
                                   change->pid};
    return kept;
}

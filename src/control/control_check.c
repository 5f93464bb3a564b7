/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Validates replies of <wayback/control.h>. A tool reads the bytes of a daemon into its own memory, and the mount may
 * belong to another user: sizes, offsets of strings, their ends and the names in them are checked here, once, so that
 * the code that uses a reply need not check them.
 */
#include "control/requests.h"
#include "wayback/control.h"

#include "wayback/at_name.h"
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static bool is_text(const char *text, size_t room)
{
    return memchr(text, '\0', room) != NULL;
}

/* Whether it is valid as one component: not empty, ".", ".." or a path. */
static bool is_name(const char *name)
{
    return *name && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

/* Such components separated by slashes, or "". */
static bool is_inside(const char *path)
{
    while (*path) {
        size_t length = strcspn(path, "/");

        if (length == 0 || (path[0] == '.' && (length == 1 || (length == 2 && path[1] == '.'))))
            return false;
        path += length;
        if (*path == '/' && !*++path)
            return false;
    }
    return true;
}

/*
 * The next item of a packed list, which begins with its size. Its text, from `head` on, must end with a NUL, so that
 * every string that begins in it ends in it. NULL if the item is invalid.
 */
static const void *take_item(const struct wb_control *reply, size_t *used, size_t min, size_t head, size_t *ret_room)
{
    const uint8_t *at = reply->data + *used;
    uint32_t size;

    if (sizeof(reply->data) - *used < min)
        return NULL;
    memcpy(&size, at, sizeof(size));
    if (size < min || size > sizeof(reply->data) - *used || size % 8 != 0 || size <= head || at[size - 1] != '\0')
        return NULL;
    *used += size;
    *ret_room = size - head;
    return at;
}

/* ---- replies of each kind ---------------------------------------------------------------------- */

static bool check_hello(const struct wb_control *reply)
{
    const struct wb_control_hello *hello = (const void *)reply->data;

    return (hello->source[0] == '/' || hello->source[0] == '\0') && is_text(hello->source, sizeof(hello->source)) &&
           (hello->at_sign == 0 || (hello->at_sign <= CHAR_MAX && wb_at_sign_check((char)hello->at_sign)));
}

static bool check_identity(const struct wb_control *reply)
{
    const struct wb_control_identity *identity = (const void *)reply->data;

    return is_text(identity->path, sizeof(identity->path)) && is_inside(identity->path) && identity->when >= 0;
}

static bool check_versions(const struct wb_control *reply)
{
    const struct wb_control_version *version = (const void *)reply->data;

    if (reply->count > sizeof(reply->data) / sizeof(*version))
        return false;
    for (uint32_t i = 0; i < reply->count; i++, version++) {
        if (!is_text(version->op_name, sizeof(version->op_name)) || !is_text(version->name, sizeof(version->name)) ||
            !is_text(version->other, sizeof(version->other)) || !is_text(version->detail, sizeof(version->detail)) ||
            !is_text(version->command, sizeof(version->command)) || version->when < 0 ||
            version->thinned_since < 0 || (*version->name && !is_name(version->name)) ||
            (*version->other && !is_name(version->other)))
            return false;
    }
    return true;
}

static bool check_names(const struct wb_control *reply)
{
    const size_t head = offsetof(struct wb_control_name, text);
    const struct wb_control_name *name;
    size_t used = 0, room;

    for (uint32_t i = 0; i < reply->count; i++) {
        const char *end;

        name = take_item(reply, &used, sizeof(*name), head, &room);
        if (!name || !is_name(name->text) || name->first < 0 || name->last < 0)
            return false;
        /* Three strings: the name, its new path, and the command. */
        end = name->text + strlen(name->text) + 1;
        for (unsigned rest = 2; rest > 0; rest--) {
            if (end >= name->text + room)
                return false;
            end += strlen(end) + 1;
        }
    }
    return true;
}

static bool check_snapshot_items(const struct wb_control *reply, uint32_t count)
{
    const size_t head = offsetof(struct wb_control_snapshot, strings);
    const struct wb_control_snapshot *snapshot;
    size_t used = 0, room;

    for (uint32_t i = 0; i < count; i++) {
        snapshot = take_item(reply, &used, sizeof(*snapshot), head, &room);
        if (!snapshot || snapshot->text >= room || snapshot->path >= room || snapshot->when < 0)
            return false;
    }
    return true;
}

static bool check_snapshot(const struct wb_control *reply)
{
    return check_snapshot_items(reply, 1);
}

static bool check_snapshots(const struct wb_control *reply)
{
    return check_snapshot_items(reply, reply->count);
}

static bool check_changes(const struct wb_control *reply)
{
    const size_t head = offsetof(struct wb_control_change, strings);
    const struct wb_control_change *change;
    size_t used = 0, room;

    for (uint32_t i = 0; i < reply->count; i++) {
        change = take_item(reply, &used, sizeof(*change), head, &room);
        if (!change || change->op_name >= room || change->path >= room || change->other >= room ||
            change->detail >= room || change->command >= room || change->when < 0)
            return false;
    }
    return true;
}

static bool check_entries(const struct wb_control *reply)
{
    const size_t head = offsetof(struct wb_control_entry, name);
    const struct wb_control_entry *entry, *before = NULL;
    size_t used = 0, room;

    for (uint32_t i = 0; i < reply->count; i++, before = entry) {
        entry = take_item(reply, &used, sizeof(*entry), head, &room);
        if (!entry || !is_name(entry->name) || (before && strcmp(before->name, entry->name) >= 0))
            return false;
    }
    return true;
}

static bool check_files(const struct wb_control *reply)
{
    const struct wb_control_open_files *files = (const void *)reply->data;
    const char *end = files->paths + sizeof(files->paths), *at = files->paths;

    for (uint32_t i = 0; i < reply->count; i++) {
        if (at >= end || !is_text(at, (size_t)(end - at)))
            return false;
        at += strlen(at) + 1;
    }
    return true;
}

static bool check_edited(const struct wb_control *reply)
{
    const struct wb_control_edited *edited = (const void *)reply->data;
    const char *end = edited->paths + sizeof(edited->paths), *at = edited->paths;

    for (uint32_t i = 0; i < reply->count; i++) {
        if (at >= end || !is_text(at, (size_t)(end - at)) || !*at || !is_inside(at))
            return false;
        at += strlen(at) + 1;
    }
    return true;
}

static bool check_compacted(const struct wb_control *reply)
{
    const struct wb_control_compacted *compacted = (const void *)reply->data;

    return compacted->error < 4096;
}

static bool check_usage_program(const struct wb_control *reply, size_t *used)
{
    const size_t head = offsetof(struct wb_control_usage_program, name);
    const struct wb_control_usage_program *program;
    size_t room;

    program = take_item(reply, used, sizeof(*program), head, &room);
    return program && program->newest >= 0 && !strchr(program->name, '/');
}

static bool check_usage(const struct wb_control *reply)
{
    const size_t head = offsetof(struct wb_control_usage_dir, path);
    const struct wb_control_usage *usage = (const void *)reply->data;
    const struct wb_control_usage_dir *dir, *before = NULL;
    uint32_t kind = WB_CONTROL_USAGE_ITEM_DIR;
    size_t used = sizeof(*usage), room;

    if (usage->oldest < 0 || usage->newest < 0 || usage->now < 0 || usage->created < 0 || usage->permille > 1000 ||
        usage->gaps_since < 0 || usage->gaps_until < usage->gaps_since)
        return false;
    for (uint32_t i = 0; i < reply->count; i++) {
        dir = (const void *)(reply->data + used);
        if (sizeof(reply->data) - used < sizeof(*dir) || dir->kind < kind || dir->kind > WB_CONTROL_USAGE_ITEM_REST)
            return false;
        kind = dir->kind;
        if (kind >= WB_CONTROL_USAGE_ITEM_PROGRAM) {
            if (!check_usage_program(reply, &used))
                return false;
            continue;
        }
        dir = take_item(reply, &used, sizeof(*dir), head, &room);
        if (!dir || !is_inside(dir->path) || dir->oldest < 0 || dir->newest < 0 ||
            (kind == WB_CONTROL_USAGE_ITEM_DIR && before && strcmp(before->path, dir->path) >= 0))
            return false;
        before = dir;
    }
    return true;
}

static bool check_pruned(const struct wb_control *reply)
{
    const struct wb_control_pruned *pruned = (const void *)reply->data;

    return pruned->error < 4096 && pruned->permille <= 1000 &&
           is_text(pruned->snapshot, sizeof(pruned->snapshot));
}

static bool check_thinned(const struct wb_control *reply)
{
    const struct wb_control_thinned *thinned = (const void *)reply->data;

    return thinned->error < 4096 && thinned->permille <= 1000 && is_text(thinned->mistake, sizeof(thinned->mistake)) &&
           is_text(thinned->directory, sizeof(thinned->directory));
}

static bool check_moved(const struct wb_control *reply)
{
    const struct wb_control_moved *moved = (const void *)reply->data;

    return moved->error < 4096 && moved->pause >= 0 && moved->moved <= 1 && is_text(moved->text, sizeof(moved->text));
}

static bool check_erased(const struct wb_control *reply)
{
    const struct wb_control_erased_name *erased = (const void *)reply->data;

    if (reply->count > WB_CONTROL_ERASE_NAMES_MAX)
        return false;
    for (uint32_t i = 0; i < reply->count; i++)
        if (erased[i].error >= 4096)
            return false;
    return true;
}

static bool check_budget(const struct wb_control *reply)
{
    const struct wb_control_budget *budget = (const struct wb_control_budget *)(const void *)reply->data;

    return budget->keep >= 0 && reply->count <= WB_CONTROL_BUDGET_USERS_MAX;
}

/* Numbers of which each is valid. */
static bool check_anything(const struct wb_control *reply)
{
    return true;
}

/* ---- all replies ------------------------------------------------------------------------------ */

/* How the last of several replies is recognised. */
enum list {
    ONE,     /* the caller compares the number of items */
    COUNT,   /* no items */
    FILES,   /* no items, and the cursor is unchanged */
    USAGE,   /* flags */
    EDITED,  /* a flag */
    CHANGES, /* flags; and the cursor decreases */
};

#define REPLY(NAME, name, flags, reply, list) [WB_CONTROL_##NAME] = {check_##reply, list},

static const struct {
    bool (*check)(const struct wb_control *reply);
    enum list list;
} replies[] = {WB_CONTROL_REQUESTS(REPLY)};

/* A reply that announces more entries must advance the cursor: otherwise a caller that requests all of them would never
 * finish. */
static bool list_advances(enum list list, uint64_t cursor, const struct wb_control *reply)
{
    switch (list) {
    case ONE:
        break;
    case COUNT:
        return reply->count == 0 || reply->cursor > cursor;
    case USAGE:
        return !(reply->flags & WB_CONTROL_USAGE_MORE) ||
               (reply->cursor > cursor && (reply->count > 0 || reply->flags & WB_CONTROL_USAGE_BUILDING));
    case EDITED:
        return !(reply->flags & WB_CONTROL_EDITED_MORE) || (reply->cursor > cursor && reply->count > 0);
    case FILES:
        return reply->cursor > cursor || (reply->count == 0 && reply->cursor == cursor);
    case CHANGES:
        return (reply->flags & WB_CONTROL_CHANGES_BUILDING) || !(reply->flags & WB_CONTROL_CHANGES_MORE) ||
               cursor == 0 || reply->cursor <= cursor;
    }
    return true;
}

int wb_control_check(uint32_t command, uint64_t cursor, const struct wb_control *reply)
{
    const size_t known = sizeof(replies) / sizeof(*replies);
    bool right = reply->version == WB_CONTROL_VERSION && reply->command == command && command < known &&
                 replies[command].check && replies[command].check(reply) &&
                 list_advances(replies[command].list, cursor, reply);

    return right ? 0 : -EPROTO;
}

/* ---- requests ---------------------------------------------------------------------------------- */

const struct wb_control_erase_name *wb_control_erase_name(const struct wb_control *request, size_t *used)
{
    const struct wb_control_erase_name *name;
    size_t room;

    name = take_item(request, used, sizeof(*name) + 8, offsetof(struct wb_control_erase_name, path), &room);
    return name && room <= WB_CONTROL_PATH_MAX ? name : NULL;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vdiff.h"
#include "common/cli.h"
#include "client/fd.h"
#include "common/moment.h"
#include "common/pager.h"
#include "client/path.h"
#include "common/text.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#define BLOCK (128 * 1024)

int diff_open(const struct diff *diff, int side, const char *path)
{
    g_autofree char *whole = NULL;
    _cleanup_fd_ int dir = -1;
    const char *name;
    struct stat st;
    int fd;

    if (!diff->side[side].path)
        return -ENOENT;
    whole = wb_path_join(diff->side[side].path, path);
    dir = wb_fd_open_parent(diff->place->mount->root_fd, whole, &name);
    if (dir < 0) /* what holds it on one side may be a file, or a link, on the other */
        return dir == -ENOTDIR || dir == -ELOOP ? -ENOENT : dir;
    /* O_NONBLOCK: what became a fifo meanwhile does not hold us up. */
    fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == ELOOP ? -ENOENT : -errno;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return -ENOENT;
    }
    return fd;
}

/*
 * The block at or after `offset` in which one of the files has data. Holes are zeros, in both alike as far as both
 * reach; behind the end of one, the other differs by its size alone.
 */
static uint64_t skip_holes(struct wb_data_walk walks[2], uint64_t offset, struct difference *ret)
{
    int64_t at = (int64_t)offset, next = MAX(walks[OLD].size, walks[NEW].size);

    for (int side = OLD; side <= NEW; side++) {
        int64_t data = wb_data_walk_next(&walks[side], at);

        if (data < walks[side].size)
            next = MIN(next, data);
    }
    next -= next % BLOCK;
    if (next <= at)
        return offset;
    for (int side = OLD; side <= NEW; side++)
        ret->size[side] += (uint64_t)MAX(MIN(next, walks[side].size) - at, 0);
    ret->binary = true;
    return (uint64_t)next;
}

int diff_bytes(const int fds[2], struct difference *ret)
{
    g_autofree uint8_t *old = g_malloc(BLOCK);
    g_autofree uint8_t *new = g_malloc(BLOCK);
    struct wb_data_walk walks[2];
    bool in_range = false;

    *ret = (struct difference){0};
    for (int side = OLD; side <= NEW; side++) {
        struct stat st = {0};

        if (fds[side] >= 0 && fstat(fds[side], &st) < 0)
            return -errno;
        wb_data_walk_begin(&walks[side], fds[side], st.st_size);
    }
    for (uint64_t offset = 0;; offset += BLOCK) {
        uint64_t next = skip_holes(walks, offset, ret);
        ssize_t n[2];

        in_range = in_range && next == offset;
        offset = next;

        for (int side = OLD; side <= NEW; side++) {
            n[side] = fds[side] < 0 ? 0 : wb_fd_read(fds[side], side == OLD ? old : new, BLOCK, (int64_t)offset);
            if (n[side] < 0)
                return (int)n[side];
            ret->size[side] += (uint64_t)n[side];
            ret->binary = ret->binary || memchr(side == OLD ? old : new, '\0', (size_t)n[side]);
        }
        if (n[OLD] == 0 && n[NEW] == 0)
            return 0;
        if (wb_cli_interrupted())
            return -EINTR;
        if (n[OLD] == n[NEW] && memcmp(old, new, (size_t)n[OLD]) == 0) {
            in_range = false;
            continue;
        }
        for (ssize_t i = 0; i < MIN(n[OLD], n[NEW]); i++) {
            if (old[i] == new[i]) {
                in_range = false;
                continue;
            }
            if (ret->bytes++ == 0)
                ret->first = offset + (uint64_t)i;
            ret->ranges += !in_range;
            in_range = true;
        }
    }
}

/* ---- one file -------------------------------------------------------------------------------- */

struct stat_lines {
    uint64_t added, removed;
    bool in_hunk;
};

static void count_line(void *data, const char *text, size_t length)
{
    struct stat_lines *lines = data;

    /* The headings begin with the same signs. */
    lines->in_hunk = lines->in_hunk || *text == '@';
    lines->added += lines->in_hunk && *text == '+';
    lines->removed += lines->in_hunk && *text == '-';
}

static void print_line(void *data, const char *text, size_t length)
{
    bool *in_hunk = data;
    size_t line = length > 0 && text[length - 1] == '\n' ? length - 1 : length;
    enum wb_color color = WB_COLOR_OFF;

    *in_hunk = *in_hunk || *text == '@';
    if (*text == '@')
        color = WB_COLOR_CYAN;
    else if (!*in_hunk)
        color = WB_COLOR_BOLD;
    else if (*text == '+')
        color = WB_COLOR_GREEN;
    else if (*text == '-')
        color = WB_COLOR_RED;
    if (color != WB_COLOR_OFF)
        fputs(wb_color(color), stdout);
    fwrite(text, 1, line, stdout);
    if (color != WB_COLOR_OFF)
        fputs(wb_color(WB_COLOR_OFF), stdout);
    fwrite(text + line, 1, length - line, stdout);
}

static void describe_binary(const struct difference *difference)
{
    char old[WB_TEXT_SIZE_MAX], new[WB_TEXT_SIZE_MAX];
    uint64_t shorter = MIN(difference->size[OLD], difference->size[NEW]);

    printf("%s -> %s", wb_text_size(difference->size[OLD], old), wb_text_size(difference->size[NEW], new));
    if (difference->bytes > 0)
        printf(", %" PRIu64 " byte%s differ%s in %" PRIu64 " range%s, the first at %" PRIu64, difference->bytes,
               difference->bytes == 1 ? "" : "s", difference->bytes == 1 ? "s" : "", difference->ranges,
               difference->ranges == 1 ? "" : "s", difference->first);
    else if (shorter > 0)
        printf(", equal up to the end of the shorter one");
}

static void show_stat(struct diff *diff, const char *path, const int fds[2], const struct difference *difference)
{
    g_autofree char *name = diff_name(diff, path);
    g_autofree char *shown = wb_text_printable(name);
    struct stat_lines lines = {0};

    if (difference->binary) {
        printf("%s | binary, ", shown);
        describe_binary(difference);
        putchar('\n');
    } else if (diff_text(diff, path, fds, count_line, &lines) == 0) {
        printf("%s | %s+%" PRIu64 "%s %s-%" PRIu64 "%s\n", shown, wb_color(WB_COLOR_GREEN), lines.added,
               wb_color(WB_COLOR_OFF), wb_color(WB_COLOR_RED), lines.removed, wb_color(WB_COLOR_OFF));
    }
}

/* LABEL@TIME, or LABEL alone for the present; g_free. */
static char *at_moment(const struct diff *diff, int side, const char *label)
{
    const char *time = diff->side[side].time;

    return time ? wb_moment_entry(diff->place->mount, label, time) : g_strdup(label);
}

static void show_diff(struct diff *diff, const char *path, const int fds[2], const struct difference *difference)
{
    g_autofree char *old = diff_label(diff, OLD, path);
    g_autofree char *new = diff_label(diff, NEW, path);
    g_autofree char *past = at_moment(diff, OLD, old);
    g_autofree char *now = at_moment(diff, NEW, new);
    bool in_hunk = false;

    /* Programs that apply patches pass over this line; people see the moments in it. */
    printf("%svdiff %s %s%s\n", wb_color(WB_COLOR_BOLD), past, now, wb_color(WB_COLOR_OFF));
    if (difference->binary) {
        printf("Binary files %s and %s differ: ", old, new);
        describe_binary(difference);
        putchar('\n');
    } else {
        diff_text(diff, path, fds, print_line, &in_hunk);
    }
}

void diff_content(struct diff *diff, const char *path)
{
    struct difference difference;
    int fds[2], r = 0;

    for (int side = OLD; side <= NEW; side++) {
        fds[side] = diff_open(diff, side, path);
        if (fds[side] < 0 && fds[side] != -ENOENT)
            r = fds[side];
    }
    if (r == 0)
        r = diff_bytes(fds, &difference);
    if (r < 0)
        diff_fail(diff, path, r);
    else if (diff->detail == DETAIL_STAT)
        show_stat(diff, path, fds, &difference);
    else
        show_diff(diff, path, fds, &difference);
    for (int side = OLD; side <= NEW; side++)
        if (fds[side] >= 0)
            close(fds[side]);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "containing.h"
#include "client/past_path.h"
#include "client/path.h"
#include "common/cli.h"
#include "common/text.h"
#include "content/states.h"
#include <errno.h>
#include <string.h>

#define SHOWN_MAX 5

void containing_begin(struct containing *containing, struct wb_text_search *search, const struct wb_place *place,
                      const char *name)
{
    *containing = (struct containing){.search = search, .place = place, .name = name,
                                      .unknown = g_array_new(FALSE, FALSE, sizeof(uint32_t))};
}

void containing_clear(struct containing *containing)
{
    g_clear_pointer(&containing->unknown, g_array_unref);
    g_clear_pointer(&containing->same_name, g_free);
}

static int search(struct containing *containing, const char *path)
{
    uint64_t size;

    return wb_text_search_file(containing->search, containing->place->mount->root_fd, path, &size);
}

/* dir/name for the base name of the path; g_free. */
static char *beside(const struct containing *containing, const char *name)
{
    g_autofree char *dir = wb_path_parent(containing->place->path, NULL);

    return wb_path_join(dir, name);
}

/* PATH@~N: the file before its N-th most recent change, under whatever path it had then. g_free. */
static char *before_change(const struct containing *containing, uint32_t change)
{
    g_autofree char *count = g_strdup_printf("~%u", change);
    g_autofree char *entry = wb_moment_entry(containing->place->mount, containing->name, count);

    return beside(containing, entry);
}

/* Whether both paths are the same object, at different times. */
static bool is_one_object(const struct containing *containing, const char *path, const char *other)
{
    int root_fd = containing->place->mount->root_fd;
    struct wb_control_identity a, b;

    return wb_request_identify(root_fd, path, &a) == 0 && wb_request_identify(root_fd, other, &b) == 0 &&
           a.ino == b.ino && a.birth == b.birth;
}

/* The state after the change, which is the one before the next change of the same file. */
static int search_after(struct containing *containing, const struct wb_control_version *version, const char *name)
{
    g_autofree char *path = beside(containing, name);
    g_autofree char *then = wb_moment_shift(containing->place->mount, path, version->when);
    g_autofree char *before = before_change(containing, version->change);
    g_autofree char *after = NULL;
    int r = version->change == 1 ? search(containing, path) : -ENOENT;

    if (r == -ENOENT && !containing->unsure)
        r = search(containing, then);
    if (r != -ENOENT)
        return r;
    if (version->change > 1) {
        after = before_change(containing, version->change - 1);
        if (is_one_object(containing, before, after))
            return search(containing, after);
    }
    if (is_one_object(containing, before, then))
        return search(containing, then);
    return -EXDEV;
}

static void note(struct containing *containing, const struct wb_control_version *version, int has)
{
    if (has > 0) {
        if (containing->last == 0) {
            containing->last = version->change;
            containing->last_when = version->when;
        }
        containing->first = version->change;
        containing->first_when = version->when;
    } else if (has < 0 && has != -EINTR) {
        g_array_append_val(containing->unknown, version->change);
        containing->error = has;
    }
}

int containing_after(struct containing *containing, const struct wb_control_version *version)
{
    const char *name = wb_version_name_after(version, containing->name);
    bool withheld = version->flags & WB_CONTROL_VERSION_WITHHELD;
    int has = 0;

    if (withheld)
        has = -EACCES;
    else if (containing->same_name && strcmp(name, containing->same_name) == 0)
        has = containing->same;
    else if (version->exists_after && !wb_version_empties(version))
        has = search_after(containing, version, name);
    g_clear_pointer(&containing->same_name, g_free);
    if (!withheld && !containing->unsure && wb_version_keeps_content(version)) {
        containing->same_name = g_strdup(name);
        containing->same = has;
    }
    if (strcmp(version->op_name, "rename") == 0 && strcmp(version->name, containing->name) == 0 &&
        strcmp(version->other, containing->name) == 0)
        containing->unsure = true;
    note(containing, version, has);
    return has;
}

void containing_end(struct containing *containing, const struct wb_control_version *oldest)
{
    g_autofree char *before = oldest ? before_change(containing, oldest->change) : NULL;
    int has;

    if (oldest && (!oldest->existed_before || oldest->flags & WB_CONTROL_VERSION_WITHHELD))
        return;
    has = search(containing, before ? before : containing->place->path);
    if (has < 0 && has != -ENOENT) {
        uint32_t none = 0;

        g_array_append_val(containing->unknown, none);
        containing->error = has;
    }
    containing->before = has > 0;
}

static void append_change(GString *text, uint32_t change, int64_t when)
{
    char time[WB_WHEN_TEXT_MAX];

    g_string_append_printf(text, "change %u, %s", change, wb_text_time(when, false, time));
}

char *containing_summary(const struct containing *containing, bool complete)
{
    GString *text = g_string_new(NULL);

    if (!containing->before && containing->first == 0) {
        g_string_append(text, "no version contains the text");
        return g_string_free(text, FALSE);
    }
    g_string_append(text, complete ? "first: " : "first of these: ");
    if (containing->before)
        g_string_append(text, "before the oldest change");
    else
        append_change(text, containing->first, containing->first_when);
    g_string_append(text, "; last: ");
    if (containing->last == 0)
        g_string_append(text, "the same");
    else
        append_change(text, containing->last, containing->last_when);
    return g_string_free(text, FALSE);
}

void containing_json(const struct containing *containing, GString *members)
{
    if (containing->first)
        g_string_append_printf(members, ",\"first_change\":%u", containing->first);
    if (containing->last)
        g_string_append_printf(members, ",\"last_change\":%u", containing->last);
    g_string_append_printf(members, ",\"before\":%s,\"unknown\":%u", containing->before ? "true" : "false",
                           containing->unknown->len);
}

void containing_fail(const struct containing *containing)
{
    GString *text = g_string_new(NULL);

    for (guint i = 0; i < containing->unknown->len && i < SHOWN_MAX; i++) {
        uint32_t change = g_array_index(containing->unknown, uint32_t, i);

        g_string_append(text, i > 0 ? ", " : "");
        if (change)
            g_string_append_printf(text, "after change %u", change);
        else
            g_string_append(text, "before the oldest change");
    }
    if (containing->unknown->len > SHOWN_MAX)
        g_string_append_printf(text, " and %u more", containing->unknown->len - SHOWN_MAX);
    if (text->len > 0)
        wb_cli_fail(containing->place->given, "the content is not known %s (%s); the text may be there, too", text->str,
                    containing->error == -EXDEV ? "it was in another directory then; use its path there"
                                                : wb_errno_text(containing->error));
    g_string_free(text, TRUE);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "containing.h"
#include "client/past_path.h"
#include "client/path.h"
#include "common/cli.h"
#include "common/json.h"
#include "common/text.h"
#include "content/states.h"
#include <errno.h>
#include <string.h>

#define SHOWN_MAX 5
/* In `unknown`: not a version, but the state after a gap. */
#define CONTAINING_GAP UINT32_MAX

struct object {
    uint64_t ino; /* 0: there was none, or it is not known */
    int64_t birth;
    bool asked;
};

void containing_begin(struct containing *containing, struct wb_text_search *search, const struct wb_place *place,
                      const char *name)
{
    *containing = (struct containing){.search = search, .place = place, .name = name,
                                      .unknown = g_array_new(FALSE, FALSE, sizeof(uint32_t)),
                                      .objects = g_array_new(FALSE, TRUE, sizeof(struct object))};
}

void containing_clear(struct containing *containing)
{
    g_clear_pointer(&containing->unknown, g_array_unref);
    g_clear_pointer(&containing->objects, g_array_unref);
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

/* PATH@~~N: the file before its N-th most recent change, under whatever path it had then. g_free. */
static char *before_change(const struct containing *containing, uint32_t change)
{
    g_autofree char *count = g_strdup_printf("~~%u", change);
    g_autofree char *entry = wb_moment_entry(containing->place->mount, containing->name, count);

    return beside(containing, entry);
}

/* The object of a path, or zeros. */
static struct wb_control_identity identify(const struct containing *containing, const char *path)
{
    struct wb_control_identity identity;

    if (wb_request_identify(containing->place->mount->root_fd, path, &identity) < 0)
        return (struct wb_control_identity){0};
    return identity;
}

/* The object that a change was about, as it was before. */
static struct object object_before(struct containing *containing, uint32_t change)
{
    struct object *object;

    if (containing->objects->len <= change)
        g_array_set_size(containing->objects, change + 1);
    object = &g_array_index(containing->objects, struct object, change);
    if (!object->asked) {
        g_autofree char *path = before_change(containing, change);
        struct wb_control_identity identity = identify(containing, path);

        *object = (struct object){identity.ino, identity.birth, true};
    }
    return *object;
}

static bool is_object(const struct object *a, uint64_t ino, int64_t birth)
{
    return a->ino != 0 && a->ino == ino && a->birth == birth;
}

/* Searches `path` as it was at `when`, also below directories that are gone; *ret_size is its size then. */
static int search_at(struct containing *containing, const char *path, int64_t when, uint64_t *ret_size)
{
    const struct wb_mount *mount = containing->place->mount;
    g_autofree char *then = wb_moment_shift(mount, path, when);
    g_autofree char *found = NULL;
    int r = wb_text_search_file(containing->search, mount->root_fd, then, ret_size);

    if (r != -ENOENT)
        return r;
    r = wb_moment_path(mount, path, when, &found);
    return r < 0 ? r : wb_text_search_file(containing->search, mount->root_fd, found, ret_size);
}

/* The state of the name after the change; not that of another file, from a directory where it had the same name. */
static int search_name(struct containing *containing, const struct wb_control_version *version, const char *path)
{
    uint64_t size = version->size_after;
    int r = search_at(containing, path, version->when, &size);

    return r == -ENOENT || (r >= 0 && size != version->size_after) ? -EXDEV : r;
}

/*
 * The list is of several objects, or of several names, which may be in other directories. The state after a change of
 * one of them is the state before the next change of the same. `path`: where it is expected.
 */
static int search_object(struct containing *containing, const struct wb_control_version *version, const char *path)
{
    struct object object = object_before(containing, version->change);

    for (uint32_t change = version->change - 1; object.ino && change > 0 && !wb_cli_interrupted(); change--) {
        struct object next = object_before(containing, change);

        if (is_object(&object, next.ino, next.birth)) {
            g_autofree char *before = before_change(containing, change);

            return search(containing, before);
        }
    }
    return search_name(containing, version, path);
}

static int search_after(struct containing *containing, const struct wb_control_version *version)
{
    const char *name = wb_version_name_after(version, containing->name);
    g_autofree char *path = beside(containing, name);
    uint64_t size;

    containing->several = containing->several || *version->other;
    if (version->change == 1)
        return search(containing, path);
    if (!containing->several)
        return search_at(containing, path, version->when, &size);
    return version->existed_before && !*version->other ? search_object(containing, version, path)
                                                       : search_name(containing, version, path);
}

static void note(struct containing *containing, const struct wb_save *save, int has)
{
    if (has > 0) {
        if (containing->last == 0) {
            containing->last = save->number;
            containing->last_when = save->newest.when;
        }
        containing->first = save->number;
        containing->first_when = save->newest.when;
    } else if (has < 0 && has != -EINTR) {
        uint32_t number = save->number ?: CONTAINING_GAP;

        g_array_append_val(containing->unknown, number);
        containing->error = has;
    }
}

int containing_after(struct containing *containing, const struct wb_save *save)
{
    const struct wb_control_version *version = &save->newest;
    int has = 0;

    if (version->flags & WB_CONTROL_VERSION_WITHHELD)
        has = -EACCES;
    else if (version->exists_after && !wb_version_empties(version))
        has = search_after(containing, version);
    containing->several = containing->several || save->moved;
    note(containing, save, has);
    return has;
}

void containing_end(struct containing *containing, const struct wb_control_version *oldest)
{
    g_autofree char *before = oldest ? before_change(containing, oldest->change) : NULL;
    int has;

    if (oldest && (!oldest->existed_before || oldest->flags & WB_CONTROL_VERSION_WITHHELD))
        return;
    has = search(containing, before ? before : containing->place->path);
    if (has == -ENOENT && oldest) {
        uint64_t size;

        has = search_at(containing, containing->place->path, oldest->when - 1, &size);
    }
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

    g_string_append_printf(text, "version %u, %s", change, wb_text_time(when, false, time));
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
        g_string_append(text, "before the oldest version");
    else
        append_change(text, containing->first, containing->first_when);
    g_string_append(text, "; last: ");
    if (containing->last == 0)
        g_string_append(text, "the same");
    else
        append_change(text, containing->last, containing->last_when);
    return g_string_free(text, FALSE);
}

static void add_change(JsonBuilder *members, const char *key, uint32_t change)
{
    if (change)
        wb_json_int(members, key, change);
    else
        wb_json_null(members, key);
}

void containing_json(const struct containing *containing, JsonBuilder *members)
{
    add_change(members, "first_change", containing->first);
    add_change(members, "last_change", containing->last);
    wb_json_bool(members, "before", containing->before);
    wb_json_int(members, "unknown", containing->unknown->len);
}

void containing_fail(const struct containing *containing)
{
    GString *text = g_string_new(NULL);

    for (guint i = 0; i < containing->unknown->len && i < SHOWN_MAX; i++) {
        uint32_t change = g_array_index(containing->unknown, uint32_t, i);

        g_string_append(text, i > 0 ? ", " : "");
        if (change == CONTAINING_GAP)
            g_string_append(text, "after a gap");
        else if (change)
            g_string_append_printf(text, "in version %u", change);
        else
            g_string_append(text, "before the oldest version");
    }
    if (containing->unknown->len > SHOWN_MAX)
        g_string_append_printf(text, " and %u more", containing->unknown->len - SHOWN_MAX);
    if (text->len > 0)
        wb_cli_fail(containing->place->given, "the content is not known %s (%s); the text may be there, too", text->str,
                    containing->error == -EXDEV ? "it was in another directory then; use its path there"
                                                : wb_errno_text(containing->error));
    g_string_free(text, TRUE);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "common/snapshots.h"

#include "common/cli.h"
#include "common/moment.h"
#include "common/path.h"
#include "common/text.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "wayback/at_name.h"

#define SIMILAR_MAX 5

/* ---- requests -------------------------------------------------------------------------------- */

static struct wb_control_snapshot *copy_entry(const void *at)
{
    return g_memdup2(at, ((const struct wb_control_snapshot *)at)->size);
}

/* The entries of a reply. How many bytes they take. */
static size_t take_page(const struct wb_control *reply, GPtrArray *to)
{
    size_t used = 0;

    for (uint32_t i = 0; i < reply->count; i++) {
        struct wb_control_snapshot *entry = copy_entry(reply->data + used);

        used += entry->size;
        g_ptr_array_add(to, entry);
    }
    return used;
}

int wb_snapshot_list(int dir_fd, const char *path, const char *name, GPtrArray **ret)
{
    g_autoptr(GPtrArray) all = g_ptr_array_new_with_free_func(g_free);
    g_autofree struct wb_control *request = g_new(struct wb_control, 1);
    uint64_t cursor = 0, held = 0;
    int r;

    do {
        r = wb_control_prepare(request, WB_CONTROL_SNAPSHOT_LIST, path);
        if (r == 0 && name && g_strlcpy(request->source, name, sizeof(request->source)) >= sizeof(request->source))
            r = -ENAMETOOLONG;
        request->cursor = cursor;
        if (r == 0)
            r = wb_control_call(dir_fd, request);
        if (r == 0)
            held += take_page(request, all);
        if (r == 0 && held > WB_HELD_MAX)
            r = -EOVERFLOW;
        cursor = request->cursor;
    } while (r == 0 && request->count > 0);
    if (r == 0)
        *ret = g_steal_pointer(&all);
    return r;
}

const struct wb_control_snapshot *wb_snapshot_meant(const GPtrArray *found)
{
    for (guint i = 0; i < found->len; i++) {
        const struct wb_control_snapshot *snapshot = found->pdata[i];

        if (snapshot->flags & WB_CONTROL_SNAPSHOT_MEANT)
            return snapshot;
    }
    return found->pdata[0];
}

const struct wb_control_snapshot *wb_snapshot_to_change(const GPtrArray *found)
{
    for (guint i = 0; i < found->len; i++) {
        const struct wb_control_snapshot *snapshot = found->pdata[i];

        if (snapshot->uid == geteuid() && !(snapshot->flags & WB_CONTROL_SNAPSHOT_AUTOMATIC))
            return snapshot;
    }
    return wb_snapshot_meant(found);
}

int wb_snapshot_create(int dir_fd, const char *path, const char *name, const char *text,
                       struct wb_control_snapshot **ret)
{
    g_autofree struct wb_control *request = g_new(struct wb_control, 1);
    struct wb_control_snapshot_new *wanted = (struct wb_control_snapshot_new *)(void *)request->data;
    int r = wb_control_prepare(request, WB_CONTROL_SNAPSHOT_CREATE, path);

    if (r < 0)
        return r;
    if (g_strlcpy(wanted->name, name, sizeof(wanted->name)) >= sizeof(wanted->name) ||
        g_strlcpy(wanted->text, text, sizeof(wanted->text)) >= sizeof(wanted->text))
        return -EINVAL;
    r = wb_control_call(dir_fd, request);
    if (r < 0)
        return r;
    *ret = copy_entry(request->data);
    return 0;
}

int wb_snapshot_rename(int dir_fd, const char *name, const char *new_name)
{
    g_autofree struct wb_control *request = g_new(struct wb_control, 1);
    struct wb_control_snapshot_names *names = (struct wb_control_snapshot_names *)(void *)request->data;
    int r = wb_control_prepare(request, WB_CONTROL_SNAPSHOT_RENAME, "");

    if (r < 0)
        return r;
    if (g_strlcpy(names->name, name, sizeof(names->name)) >= sizeof(names->name))
        return -ENOENT;
    if (g_strlcpy(names->new_name, new_name, sizeof(names->new_name)) >= sizeof(names->new_name))
        return -EINVAL;
    return wb_control_call(dir_fd, request);
}

int wb_snapshot_delete(int dir_fd, const char *name)
{
    g_autofree struct wb_control *request = g_new(struct wb_control, 1);
    int r = wb_control_prepare(request, WB_CONTROL_SNAPSHOT_DELETE, "");

    if (r < 0)
        return r;
    if (g_strlcpy(request->source, name, sizeof(request->source)) >= sizeof(request->source))
        return -ENOENT;
    return wb_control_call(dir_fd, request);
}

int wb_snapshot_files(int dir_fd, const char *name, char ***ret, uint64_t *ret_unnamed)
{
    g_autoptr(GPtrArray) paths = g_ptr_array_new_with_free_func(g_free);
    g_autofree struct wb_control *request = g_new(struct wb_control, 1);
    const struct wb_control_open_files *reply = (const void *)request->data;
    uint64_t cursor = 0, hidden = 0, held = 0;
    bool over = false;

    while (!over) {
        size_t used = 0;
        int r = wb_control_prepare(request, WB_CONTROL_SNAPSHOT_FILES, "");

        if (r == 0 && g_strlcpy(request->source, name, sizeof(request->source)) >= sizeof(request->source))
            r = -ENOENT;
        request->cursor = cursor;
        if (r == 0)
            r = wb_control_call(dir_fd, request);
        if (r < 0)
            return r;
        for (uint32_t i = 0; i < request->count; i++) {
            g_ptr_array_add(paths, g_strdup(reply->paths + used));
            used += strlen(reply->paths + used) + 1;
        }
        held += used + request->count * sizeof(char *);
        if (held > WB_HELD_MAX)
            return -EOVERFLOW;
        hidden += reply->hidden;
        over = request->cursor == cursor;
        cursor = request->cursor;
    }
    *ret_unnamed = hidden + reply->more;
    g_ptr_array_add(paths, NULL);
    *ret = (char **)g_ptr_array_free(g_steal_pointer(&paths), FALSE);
    return 0;
}

/* ---- names that resemble --------------------------------------------------------------------- */

/* The least number of characters to insert, remove or replace (Levenshtein), ignoring case. */
static unsigned distance(const char *a, const char *b)
{
    size_t columns = strlen(b);
    g_autofree unsigned *row = g_new(unsigned, columns + 1);

    for (size_t j = 0; j <= columns; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; a[i - 1]; i++) {
        unsigned diagonal = row[0];

        row[0] = (unsigned)i;
        for (size_t j = 1; j <= columns; j++) {
            unsigned replaced = diagonal + (g_ascii_tolower(a[i - 1]) != g_ascii_tolower(b[j - 1]));

            diagonal = row[j];
            row[j] = MIN(replaced, MIN(row[j], row[j - 1]) + 1);
        }
    }
    return row[columns];
}

static bool resembles(const char *name, const char *wanted)
{
    size_t length = strlen(wanted);

    return strcasestr(name, wanted) || (length > 3 && strcasestr(wanted, name)) ||
           distance(name, wanted) <= (length < 4 ? 1 : length / 3);
}

char *wb_snapshot_similar(const GPtrArray *snapshots, const char *name)
{
    GString *names = g_string_new(NULL);
    unsigned count = 0;

    /* The newest are the likeliest. */
    for (guint i = snapshots->len; i-- > 0 && count < SIMILAR_MAX;) {
        const struct wb_control_snapshot *snapshot = snapshots->pdata[i];

        if (!resembles(wb_snapshot_name(snapshot), name))
            continue;
        g_string_append_printf(names, "%s%s", count > 0 ? ", " : "", wb_snapshot_name(snapshot));
        count++;
    }
    return g_string_free(names, count == 0);
}

/* ---- a TIME on the command line -------------------------------------------------------------- */

#define TIMES "14:03, yesterday, 2026-11-20T09:30, 2h30m, \"5 minutes ago\" or seconds since the epoch"

#define EPOCH_DIGITS_MIN 9

/*
 * A number that is too short to be seconds since the epoch. *meaning: what the user is likely to mean by it, "23:40"
 * or "2026-11-25"; else "".
 */
static bool is_short_number(const char *text, char meaning[16])
{
    g_autofree char *number = g_strstrip(g_strdup(text + (*text == WB_AT_SIGN)));
    size_t digits = strspn(number, "0123456789");
    struct wb_time time;

    if (digits == 0 || digits >= EPOCH_DIGITS_MIN || number[digits])
        return false;
    *meaning = '\0';
    if (digits == 4)
        g_snprintf(meaning, 16, "%.2s:%.2s", number, number + 2);
    else if (digits == 8)
        g_snprintf(meaning, 16, "%.4s-%.2s-%.2s", number, number + 4, number + 6);
    if (*meaning && wb_time_parse(meaning, wb_when_now(), &time) != 0)
        *meaning = '\0';
    return true;
}

int wb_time_check(const char *option, const char *text)
{
    struct wb_time time;
    g_autofree char *shown = NULL;
    char meaning[16];

    if (is_short_number(text, meaning))
        return wb_cli_usage("%s: '%s' is not a time (seconds since the epoch have %d digits or more); %s%s%swrite "
                            TIMES, option, text, EPOCH_DIGITS_MIN, *meaning ? "did you mean " : "", meaning,
                            *meaning ? "? Otherwise " : "");
    if (wb_time_parse_words(text, wb_when_now(), &time) == 0 ||
        wb_snapshot_name_check(text + (*text == WB_AT_SIGN), NULL) == 0 ||
        wb_time_parse_free(text, wb_when_now(), &time) == 0)
        return 0;
    shown = wb_text_printable(text);
    return wb_cli_usage("%s: '%s' is neither a time nor a valid name of a snapshot; write " TIMES, option, shown);
}

static int not_found(const char *option, const char *name, const GPtrArray *all)
{
    g_autofree char *similar = wb_snapshot_similar(all, name);
    g_autofree char *shown = wb_text_printable(name);

    return wb_cli_usage("%s: '%s' is neither a time nor a snapshot here; %s%s%s write " TIMES, option, shown,
                        similar      ? "did you mean "
                        : all->len > 0 ? "'vsnap list' lists them;"
                                       : "there are no snapshots;",
                        similar ? similar : "", similar ? "? For a time" : "");
}

const char *wb_time_text(const struct wb_place *place, const char *text)
{
    return text + (*text && (*text == WB_AT_SIGN || *text == place->mount->at_sign));
}

int wb_time_of(const struct wb_place *place, const char *option, const char *text, struct wb_time *ret)
{
    const char *name = wb_time_text(place, text);
    g_autoptr(GPtrArray) found = NULL;
    g_autoptr(GPtrArray) all = NULL;
    const struct wb_control_snapshot *snapshot;
    struct wb_control_identity identity;
    g_autofree char *then = NULL;
    int fd = place->mount->root_fd, r;

    if (wb_time_parse_words(name, wb_control_now(), ret) == 0)
        return 0;
    r = wb_time_check(option, name);
    if (r != 0)
        return r;
    r = wb_snapshot_list(fd, place->path, name, &found);
    /* A daemon of before there were snapshots, or a mount without a history. */
    if (r < 0)
        found = g_ptr_array_new();
    if (found->len == 0 && wb_time_parse_free(name, wb_control_now(), ret) == 0)
        return 0;
    if (found->len == 0) {
        if (r < 0 || wb_snapshot_list(fd, "", NULL, &all) < 0)
            all = g_ptr_array_new_with_free_func(g_free);
        return not_found(option, name, all);
    }
    snapshot = wb_snapshot_meant(found);
    *ret = (struct wb_time){.kind = WB_TIME_INSTANT, .instant = snapshot->when};
    then = wb_moment_name(place->mount, place->path, name);
    if (!(snapshot->flags & WB_CONTROL_SNAPSHOT_COVERS) && wb_control_identify(fd, then, &identity) == -ENOENT) {
        g_autofree char *scope = wb_text_printable(wb_snapshot_path(snapshot));

        return wb_cli_usage("%s: the snapshot '%s' covers %s only, not %s; use its time instead ('vsnap show %s')",
                            option, name, scope, place->given, name);
    }
    return 0;
}

int wb_time_past(const struct wb_place *place, const char *option, const char *text, int64_t *ret)
{
    struct wb_time time;
    bool known = wb_time_parse_words(text, wb_control_now(), &time) == 0;
    int r = 0;

    if (known && place)
        return 0;
    *ret = 0;
    if (!known)
        r = place ? wb_time_of(place, option, text, &time) : wb_time_check(option, text);
    if (r != 0 || (!known && !place))
        return r;
    if (time.kind != WB_TIME_INSTANT)
        return wb_cli_usage("%s: '%s' is a number of changes; use a time here", option, text);
    if (time.instant > wb_control_now()) {
        char when[WB_WHEN_TEXT_MAX];

        return wb_cli_usage("%s: '%s' is in the future (%s); give a time in the past", option, text,
                            wb_when_print(time.instant, 0, when));
    }
    *ret = time.instant;
    return 0;
}

static int instant(const struct wb_place *place, const char *option, const char *text, const char *limit, int64_t *ret)
{
    struct wb_time time;
    int r;

    *ret = 0;
    if (!text)
        return 0;
    r = place ? wb_time_of(place, option, text, &time) : wb_time_check(option, text);
    if (r != 0 || (!place && wb_time_parse_words(text, wb_when_now(), &time) != 0))
        return r;
    if (time.kind != WB_TIME_INSTANT)
        return wb_cli_usage("%s: '%s' is a number of changes; give a time, or use %s", option, text, limit);
    *ret = time.instant;
    return 0;
}

int wb_time_range(const struct wb_place *place, const char *since_text, const char *until_text, const char *limit,
                  int64_t *ret_since, int64_t *ret_until)
{
    int r = instant(place, "--since", since_text, limit, ret_since);

    *ret_until = 0;
    if (r == 0)
        r = instant(place, "--until", until_text, limit, ret_until);
    if (r == 0 && *ret_since && *ret_until && *ret_since > *ret_until)
        return wb_cli_usage("--since is later than --until");
    return r;
}

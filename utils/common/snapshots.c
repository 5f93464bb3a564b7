/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "common/snapshots.h"

#include "common/cli.h"
#include "common/moment.h"
#include "client/path.h"
#include "common/text.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "wayback/at_name.h"

#define SIMILAR_MAX 5

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

#define TIMES "14:03, \"5 minutes ago\" or 2026-11-20T09:30"

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
    g_autofree char *list = g_strdup_printf("'%s list' lists them;", wb_cli_tool("vsnap"));

    return wb_cli_usage("%s: '%s' is neither a time nor a snapshot here; %s%s%s write " TIMES, option, shown,
                        similar      ? "did you mean "
                        : all->len > 0 ? list
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
    g_autofree struct wb_control_snapshot *snapshot = NULL;
    g_autoptr(GPtrArray) all = NULL;
    int r = 0;

    if (wb_time_parse_words(name, wb_mount_now(place->mount), ret) != 0)
        r = wb_time_check(option, name);
    if (r != 0)
        return r;
    r = wb_time_find(place->mount, place->path, name, ret, &snapshot);
    if (r == -ENODATA) {
        g_autofree char *scope = wb_text_printable(wb_snapshot_path(snapshot));

        return wb_cli_usage("%s: the snapshot '%s' covers %s only, not %s; use its time instead ('%s show %s')",
                            option, name, scope, place->given, wb_cli_tool("vsnap"), name);
    }
    if (r < 0) {
        if (wb_request_snapshot_list(place->mount->root_fd, "", NULL, &all) < 0)
            all = g_ptr_array_new_with_free_func(g_free);
        return not_found(option, name, all);
    }
    return 0;
}

int wb_time_not_future(const struct wb_place *place, const char *option, const char *text, int64_t when)
{
    char shown[WB_WHEN_TEXT_MAX];

    if (when <= (place ? wb_mount_now(place->mount) : wb_when_now()))
        return 0;
    return wb_cli_usage("%s: '%s' is in the future (%s); the latest time to give is now", option, text,
                        wb_when_print(when, 0, shown));
}

int wb_time_past(const struct wb_place *place, const char *option, const char *text, int64_t *ret)
{
    struct wb_time time;
    int64_t now = place ? wb_mount_now(place->mount) : wb_when_now();
    bool known = wb_time_parse_words(text, now, &time) == 0;
    int r = 0;

    if (known && place)
        return 0;
    *ret = 0;
    if (!known)
        r = place ? wb_time_of(place, option, text, &time) : wb_time_check(option, text);
    if (r != 0 || (!known && !place))
        return r;
    if (time.kind != WB_TIME_INSTANT)
        return wb_cli_usage("%s: '%s' counts versions; use a time here", option, text);
    r = wb_time_not_future(place, option, text, time.instant);
    if (r == 0)
        *ret = time.instant;
    return r;
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
        return wb_cli_usage("%s: '%s' counts versions; give a time, or use %s", option, text, limit);
    *ret = time.instant;
    return 0;
}

/* No change can be in the range. */
static int check_range(const struct wb_place *place, const char *since_text, int64_t since, const char *until_text,
                       int64_t until)
{
    int r = since ? wb_time_not_future(place, "--since", since_text, since) : 0;

    return r == 0 && until ? wb_moment_is_known(place, until_text, until) : r;
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
    return r == 0 && place ? check_range(place, since_text, *ret_since, until_text, *ret_until) : r;
}

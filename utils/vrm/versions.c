/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vrm.h"
#include "common/cli.h"
#include "client/control.h"
#include "client/saves.h"
#include "common/json.h"
#include "common/text.h"
#include "wayback/when.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static bool parse_number(const char **text, int *ret)
{
    char *end;
    long number;

    if (!g_ascii_isdigit(**text))
        return false;
    errno = 0;
    number = strtol(*text, &end, 10);
    *text = end;
    *ret = (int)number;
    return errno == 0 && number >= 1 && number < INT32_MAX;
}

bool vrm_range_parse(const char *text, struct vrm_range *ret)
{
    ret->single = g_str_has_prefix(text, "~~");
    if (ret->single)
        text += 2;
    if (!parse_number(&text, &ret->first))
        return false;
    ret->last = ret->first;
    if (*text == '\0')
        return true;
    if (!g_str_has_prefix(text, ".."))
        return false;
    text += 2;
    return parse_number(&text, &ret->last) && *text == '\0' && ret->last >= ret->first;
}

/* There are only so many; or reading them failed with r < 0. */
static bool fail_range(const struct wb_place *place, const struct vrm_range *range, int number, int r)
{
    const char *word = range->single ? "change" : "version";

    if (r < 0 && r != -ENOENT)
        wb_cli_fail(place->given, "%s", wb_errno_text(r));
    else if (number == 1 && range->first == 1)
        wb_cli_fail(place->given, "nothing was erased: it has only one %s, and there is no history before it", word);
    else if (number < range->first)
        wb_cli_fail(place->given, "has no %s with number %d; '%s%s' lists them", word, range->first,
                    wb_cli_tool("vstat"), range->single ? " --operations" : "");
    else
        wb_cli_fail(place->given, "nothing was erased: %d is its oldest %s, and there is no history before it; the "
                                  "oldest one that can be named is %d", number, word, number - 1);
    return false;
}

/*
 * The versions of the range are to go, with all that was visible while they were written and while they were
 * replaced: from the first change of the version before them until the last of the one after. False after an error
 * line.
 */
static bool find_changes(const struct wb_place *place, const struct vrm_range *range, int64_t *from, int64_t *until)
{
    _cleanup_save_walk_ struct wb_save_walk *walk = wb_save_walk_new(place->mount->root_fd, place->path, 0, 0);
    const struct wb_save *save;
    int number = 0, r;

    while ((r = wb_save_walk_next(walk, &save)) == 0) {
        number = save->number ? (int)save->number : number;
        if (number == range->first && save->number)
            *until = save->newest.when;
        *from = save->oldest.when;
        if (save->number && number == range->last + 1)
            return true;
    }
    return fail_range(place, range, number, r);
}

/* The same of single changes. */
static bool find_single_changes(const struct wb_place *place, const struct vrm_range *range, int64_t *from,
                                int64_t *until)
{
    _cleanup_walk_ struct wb_version_walk *walk =
        wb_version_walk_new(place->mount->root_fd, place->path, 0, 0, (uint64_t)range->first - 1);
    const struct wb_control_version *change;
    int number = range->first - 1, r;

    while ((r = wb_version_walk_next(walk, &change)) == 0) {
        number++;
        if (number == range->first)
            *until = change->when;
        *from = change->when;
        if (number == range->last + 1)
            return true;
    }
    return fail_range(place, range, number, r);
}

static const char *reason(unsigned refused)
{
    switch (refused) {
    case WB_CONTROL_REFUSED_NONE:
        return "its own log does not contain these versions (they were made to another file of that name, or changed "
               "only its size or attributes); --before erases all history up to a time";
    case WB_CONTROL_REFUSED_CATALOG:
        return "its directory recorded one of these changes (of its name, its attributes, or growth before its first "
               "overwrite); --before erases all history up to a time";
    case WB_CONTROL_REFUSED_STAGE:
        return "one of these changes was recorded with history=close; --before erases all history up to a time";
    case WB_CONTROL_REFUSED_KIND:
        return "one of them changed more than content and attributes, or is a gap; --before erases all history up to a "
               "time";
    case WB_CONTROL_REFUSED_SNAPSHOT:
        return "a snapshot shows a time among them; delete it first ('vsnap list', 'vsnap delete')";
    case WB_CONTROL_REFUSED_BUNDLE:
        return "it was deleted and restored, and a bundle still contains its former state; run 'vcompact' on its "
               "directory first";
    case WB_CONTROL_REFUSED_DAMAGED:
        return "a log that may refer to it is damaged; run vfsck";
    case WB_CONTROL_REFUSED_SHOWN:
        return "it is also mounted with -o at= of a time among them, or with -o ro, where this would change what "
               "readers see; unmount that first";
    default:
        return "the daemon refused for a reason that is unknown to this program (it is older than the daemon)";
    }
}

/* Of the versions, or of single changes, which may count together since an earlier erasure. */
static uint64_t number_of(const struct vrm_range *range, const struct wb_control_erased_versions *erased)
{
    return range->single ? erased->versions : (uint64_t)(range->last - range->first) + 1;
}

static char *count_of(const struct vrm_range *range, const struct wb_control_erased_versions *erased)
{
    if (range->single)
        return wb_text_count(erased->versions, "change", "changes");
    /* As the list has it: before version N is the content that it shows at N + 1. */
    return range->first == range->last
               ? g_strdup_printf("the content of version %d", range->first + 1)
               : g_strdup_printf("the content of the versions %d to %d", range->first + 1, range->last + 1);
}

static void say(const struct wb_place *place, const struct vrm_range *range, int64_t from, int64_t until,
                const struct wb_control_erased_versions *erased)
{
    g_autofree char *name = wb_text_printable(place->given);
    g_autofree char *versions = count_of(range, erased);
    char begin[WB_WHEN_TEXT_MAX], end[WB_WHEN_TEXT_MAX], bytes[WB_TEXT_SIZE_MAX];
    g_autoptr(JsonBuilder) builder = NULL;

    if (!range->json) {
        printf("%s: %s%s, from %s until %s%s", name, range->dry_run ? "would erase " : "", versions,
               wb_when_print(from, 0, begin), wb_when_print(until, 0, end), range->dry_run ? "\n" : "");
        if (!range->dry_run)
            printf(": erased (%s freed)\n", wb_text_size(erased->bytes, bytes));
        return;
    }
    builder = json_builder_new();
    json_builder_begin_object(builder);
    wb_json_string(builder, "path", place->given);
    wb_json_bool(builder, "dry_run", range->dry_run);
    wb_json_int(builder, "first", range->first);
    wb_json_int(builder, "last", range->last);
    wb_json_time(builder, "since", from);
    wb_json_time(builder, "until", until);
    wb_json_int(builder, "versions", (int64_t)number_of(range, erased));
    wb_json_int(builder, "bytes", (int64_t)erased->bytes);
    json_builder_end_object(builder);
    wb_json_document(builder);
}

static bool ask_daemon(const struct wb_place *place, unsigned flags, int64_t from, int64_t until,
                       struct wb_control_erased_versions *erased)
{
    int r = wb_request_erase_versions(place->mount->root_fd, place->path, flags, from, until, erased);

    if (r == -ENOTTY)
        wb_cli_fail(place->given, "nothing was erased: the daemon is too old for single versions");
    else if (r == -EISDIR)
        wb_cli_fail(place->given, "nothing was erased: is a directory; --change works on single files");
    else if (r == -EPERM || r == -EACCES)
        wb_cli_fail(place->given, "not permitted: only the owner or root may erase a history");
    else if (r == -ENOENT)
        wb_cli_fail(place->given, "nothing was erased: it does not exist now; %s without --change erases all of its "
                                  "history", wb_cli_tool("vrm"));
    else if (r < 0)
        wb_cli_fail(place->given, "%s", wb_errno_text(r));
    else if (erased->refused)
        wb_cli_fail(place->given, "nothing was erased: %s", reason(erased->refused));
    return r == 0 && !erased->refused;
}

void vrm_versions(const struct wb_place *place, const struct vrm_range *range)
{
    g_autofree char *name = wb_text_printable(place->given);
    struct wb_control_erased_versions erased = {0};
    char begin[WB_WHEN_TEXT_MAX], end[WB_WHEN_TEXT_MAX];
    g_autofree char *versions = NULL;
    g_autofree char *question = NULL;
    int64_t from = 0, until = 0;

    if (!(range->single ? find_single_changes : find_changes)(place, range, &from, &until) ||
        !ask_daemon(place, WB_CONTROL_ERASE_DRY, from, until, &erased))
        return;
    if (!range->dry_run) {
        versions = count_of(range, &erased);
        question = g_strdup_printf("erase from the history of %s, from %s until %s: %s", name,
                                   wb_when_print(from, 0, begin),
                                   wb_when_print(until, 0, end), versions);
        if (!vrm_confirmed(place, question) || !ask_daemon(place, 0, from, until, &erased))
            return;
    }
    say(place, range, from, until, &erased);
}

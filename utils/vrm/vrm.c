/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vrm.h"
#include "common/cli.h"
#include "client/control.h"
#include "common/json.h"
#include "common/moment.h"
#include "common/mount.h"
#include "client/path.h"
#include "common/snapshots.h"
#include "common/text.h"
#include "wayback/when.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * vrm: removes a path together with its entire history, or what it was before a moment. The daemon does it, in one
 * request, or one for many paths; this program asks before, because nothing brings it back.
 */

static gboolean recursive, yes, history_only, dry_run, json;
static char *before_text;
static char **pattern_texts;
static char *change_text;
static struct vrm_range range;
static int64_t before; /* 0: all of the past */
static unsigned paths_done, paths_given;
static GPtrArray *removed; /* struct wb_place: directories that this run removed with everything below them */

static const GOptionEntry options[] = {
    {"recursive", 'r', 0, G_OPTION_ARG_NONE, &recursive,
     "Remove directories, with everything that is or ever was in them", NULL},
    {"yes", 'y', 0, G_OPTION_ARG_NONE, &yes, "Do not ask", NULL},
    {"history", 0, 0, G_OPTION_ARG_NONE, &history_only, "Keep the present files and erase only their history", NULL},
    {"before", 0, 0, G_OPTION_ARG_STRING, &before_text, "Keep the files and erase only history before TIME", "TIME"},
    {"pattern", 0, 0, G_OPTION_ARG_STRING_ARRAY, &pattern_texts,
     "Remove everything below PATH that matches GLOB (as in .gitignore) or ever did", "GLOB"},
    {"change", 'c', 0, G_OPTION_ARG_STRING, &change_text,
     "Keep the file and erase only what it was before version N, or before each from N to M (see vstat)", "N[..M]"},
    WB_CLI_DRY_RUN(&dry_run),
    WB_CLI_JSON(&json),
    WB_CLI_END,
};

static const struct wb_cli cli = {
    .name = "vrm",
    .arguments = "PATH...",
    .summary = "Removes files and directories permanently, with their entire history: no tool, no\n"
               "name@time and no search of the store finds them again.",
    .examples = "  vrm passwords.txt            ask, then remove the file and all its versions\n"
                "  vrm -r -y build              remove a directory with everything that ever was in it\n"
                "  vrm --history notes.md       keep the file and erase its history\n"
                "  vrm --before 30d -r mail     keep it with the history of the last 30 days\n"
                "  vrm --change 3 notes.md      erase notes.md@~3 and no other version\n"
                "  vrm --pattern '*.key' .      remove all present and deleted keys; -n lists them\n"
                "  vrm -n -r build              only show what would be removed\n",
    .paths_min = 1,
};

static uint64_t freed_by(const struct vrm_extent *extent)
{
    return history_only ? extent->freed.history : extent->freed.all;
}

/* "; frees 3.4 MiB", or "" when that is not known. */
static char *describe_room(const struct vrm_extent *extent)
{
    char bytes[WB_TEXT_SIZE_MAX], shared[WB_TEXT_SIZE_MAX];

    if (!extent->measured)
        return g_strdup("");
    wb_text_size(freed_by(extent), bytes);
    if (extent->freed.shared == 0)
        return g_strdup_printf("; frees %s", bytes);
    return g_strdup_printf("; frees %s, and up to %s of shared blocks", bytes,
                           wb_text_size(extent->freed.shared, shared));
}

/* "remove notes.md and its entire history (12 versions; frees 3.4 MiB)" */
static char *describe(const struct wb_place *place, const struct vrm_extent *extent)
{
    g_autofree char *name = wb_text_printable(place->given);
    g_autofree char *versions = wb_text_count(extent->versions, "version", "versions");
    g_autofree char *files = wb_text_count(extent->files, "file", "files");
    g_autofree char *changes = wb_text_count(extent->versions, "change of its entries", "changes of its entries");
    g_autofree char *room = describe_room(extent);
    char when[WB_WHEN_TEXT_MAX];
    GString *text = g_string_new(NULL);

    if (before) {
        g_string_append_printf(text, "erase the history of %s%s before %s (%s)", name,
                               extent->directory ? " and everything below it" : "", wb_when_print(before, 0, when),
                               extent->directory ? changes : versions);
        return g_string_free(text, FALSE);
    }
    if (history_only)
        g_string_append_printf(text, "erase the entire history of %s", name);
    else if (extent->exists)
        g_string_append_printf(text, "remove %s and its entire history", name);
    else
        g_string_append_printf(text, "remove the entire history of %s, which is deleted", name);
    if (extent->directory && extent->exists)
        g_string_append_printf(text, " with everything below it (%s, %s%s)", changes, files, room);
    else if (extent->directory)
        g_string_append_printf(text, " with everything that was in it (%s%s)", changes, room);
    else
        g_string_append_printf(text, " (%s%s)", versions, room);
    return g_string_free(text, FALSE);
}

/* Returns whether to continue; false after an error line or if the user answered no. */
bool vrm_confirmed(const struct wb_place *place, const char *question)
{
    return yes || wb_cli_confirm(place->given, question, "not removed");
}

static void say_never(const struct wb_place *place)
{
    wb_cli_fail(place->given, "no such file or directory, now or at any time recorded");
}

static void say_directory(const struct wb_place *place)
{
    wb_cli_fail(place->given, before ? "is a directory; use -r to erase its history and that of everything below it"
                                     : "is a directory; use -r to remove it with everything that is or was in it");
}

static void say_refused(const struct wb_place *place, int error)
{
    switch (-error) {
    case EISDIR:
        say_directory(place);
        break;
    case ENOENT:
        say_never(place);
        break;
    case EPERM:
    case EACCES:
        wb_cli_fail(place->given, "not permitted: only the owner or root may erase a history");
        break;
    case EUCLEAN:
        wb_cli_fail(place->given, "nothing was erased (a catalog of the store is damaged, so the history that newer "
                                  "states need is unknown); run vfsck");
        break;
    case ENOTTY:
    case EINVAL:
        wb_cli_fail(place->given, "%s", before ? "history before that time cannot be erased, or the daemon is too old"
                                               : wb_errno_text(error));
        break;
    case EROFS:
        wb_cli_fail(place->given, "is read-only; name the present path (without %cTIME) in a mount without -o ro",
                    place->mount->at_sign);
        break;
    default:
        wb_cli_fail(place->given, "%s", wb_errno_text(error));
    }
}

static void report(const struct wb_place *place, const struct wb_control_erased *erased)
{
    g_autofree char *name = wb_text_printable(place->given);
    g_autofree char *objects = wb_text_count(erased->objects, "object", "objects");
    char bytes[WB_TEXT_SIZE_MAX], when[WB_WHEN_TEXT_MAX];

    if (json) {
        g_autoptr(JsonBuilder) builder = json_builder_new();

        json_builder_begin_object(builder);
        wb_json_string(builder, "path", place->given);
        wb_json_bool(builder, "dry_run", false);
        wb_json_bool(builder, "history_only", history_only || before);
        wb_json_time(builder, "before", before);
        wb_json_int(builder, "objects", (int64_t)erased->objects);
        wb_json_int(builder, "bytes", (int64_t)erased->bytes);
        json_builder_end_object(builder);
        wb_json_document(builder);
        return;
    }
    if (before)
        printf("%s: history before %s erased (%s freed)\n", name, wb_when_print(before, 0, when),
               wb_text_size(erased->bytes, bytes));
    else
        printf("%s: %s (%s, %s freed)\n", name, history_only ? "history erased" : "removed with its history", objects,
               wb_text_size(erased->bytes, bytes));
}

static void print_extent(const struct wb_place *place, const struct vrm_extent *extent)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();

    json_builder_begin_object(builder);
    wb_json_string(builder, "path", place->given);
    wb_json_bool(builder, "dry_run", true);
    wb_json_time(builder, "before", before);
    wb_json_bool(builder, "exists", extent->exists);
    wb_json_bool(builder, "directory", extent->directory);
    wb_json_int(builder, "versions", (int64_t)extent->versions);
    wb_json_int(builder, "files", (int64_t)extent->files);
    if (extent->measured) {
        wb_json_int(builder, "bytes", (int64_t)freed_by(extent));
        wb_json_int(builder, "shared", (int64_t)extent->freed.shared);
    }
    json_builder_end_object(builder);
    wb_json_document(builder);
}

void vrm_report(const struct wb_place *place, bool hit, int r, const struct wb_control_erased *erased)
{
    /* It had another of the names, and is gone with that. */
    if (r == -ENOENT && hit)
        return;
    if (r < 0) {
        say_refused(place, r);
        wb_json_separate();
        return;
    }
    paths_done++;
    report(place, erased);
}

static void remember_removed(const struct wb_place *place)
{
    struct wb_place *copy = g_new(struct wb_place, 1);

    *copy = (struct wb_place){place->mount, g_strdup(place->given), g_strdup(place->path)};
    g_ptr_array_add(removed, copy);
}

/*
 * Files that need no question are erased together. Directories take their time, and a signal stops vrm between them;
 * the history up to a moment is not the same for each.
 */
static void erase_place(const struct wb_place *place, const struct vrm_hit *hit, bool directory)
{
    unsigned flags = (recursive ? WB_CONTROL_ERASE_RECURSIVE : 0) |
                     (hit && hit->former ? WB_CONTROL_ERASE_FORMER : 0) |
                     (history_only || before ? 0 : WB_CONTROL_ERASE_PRESENT);
    struct wb_control_erased erased = {0};
    int r;

    if (!before && (yes || hit) && !directory) {
        vrm_batch_add(place, hit != NULL, flags);
        return;
    }
    /* In the order given. */
    vrm_batch_end();
    if (wb_cli_interrupted())
        return;
    r = wb_request_erase(place->mount->root_fd, place->path, flags, before, &erased);
    vrm_report(place, hit != NULL, r, &erased);
    if (r == 0 && directory && !before && !history_only)
        remember_removed(place);
}

/* Whether this run removed it already, with a directory above it. */
static bool went_with_directory(const struct wb_place *place)
{
    for (guint i = 0; i < removed->len; i++) {
        const struct wb_place *above = removed->pdata[i];

        if (above->mount == place->mount && wb_path_below(place->path, above->path, NULL) &&
            strcmp(place->path, above->path) != 0) {
            g_autofree char *name = wb_text_printable(place->given);
            g_autofree char *directory = wb_text_printable(above->given);

            paths_done++;
            if (!json)
                printf("%s: removed with %s\n", name, directory);
            return true;
        }
    }
    return false;
}

static void removed_free(void *data)
{
    wb_place_free(data);
}

/* `hit`: a pattern found it, and it was asked for all of them already; NULL: not so. */
static void remove_place(const struct wb_place *place, const struct vrm_hit *hit)
{
    const char *path = place->given;
    struct vrm_extent extent = {0};
    g_autofree char *question = NULL;
    int r;

    wb_json_separate();
    /* No question needs its figures; the daemon checks whether it may be erased. */
    if (hit && !dry_run) {
        erase_place(place, hit, false);
        return;
    }
    if (!*place->path) {
        wb_cli_fail(path, before ? "is the root of the mount; vprune --before deletes the history of the whole tree"
                                 : "is the root of the mount; name the files in it (to erase all history: unmount, "
                                   "and remove .wayback from the tree)");
        return;
    }
    r = vrm_measure(place, before, &extent);
    /* A part of it is no figure to show. */
    if (wb_cli_interrupted())
        return;
    if (r == -ENOENT && hit)
        return;
    if (r == -ENOENT && went_with_directory(place))
        return;
    if (r == -ENOENT) {
        say_never(place);
        return;
    }
    if (r < 0) {
        wb_cli_fail(path, "%s", wb_errno_text(r));
        return;
    }
    if (extent.directory && !recursive) {
        say_directory(place);
        return;
    }
    /* With a moment, only the daemon that does it finds out. */
    r = before || (yes && !dry_run) ? 0 : vrm_measure_room(place, hit, &extent);
    if (r < 0) {
        say_refused(place, r);
        return;
    }
    question = describe(place, &extent);
    if (dry_run) {
        if (json)
            print_extent(place, &extent);
        else
            printf("would %s\n", question);
        return;
    }
    if (!hit && !vrm_confirmed(place, question))
        return;
    erase_place(place, hit, extent.directory);
}

/* ---- patterns -------------------------------------------------------------------------------- */

/* NULL after an error. */
static struct wb_patterns *read_patterns(void)
{
    struct wb_patterns *patterns = wb_patterns_new();
    struct wb_pattern_mistake why;

    for (char **text = pattern_texts; *text; text++) {
        if (wb_patterns_add(patterns, *text, &why) == 0)
            continue;
        wb_cli_usage("--pattern: '%s' is not a valid pattern, at byte %zu: %s", *text, why.at + 1, why.reason);
        wb_patterns_free(patterns);
        return NULL;
    }
    return patterns;
}

static bool all_confirmed(const struct wb_place *place, guint count, const char *texts)
{
    g_autofree char *name = wb_text_printable(place->given);
    g_autofree char *names = wb_text_count(count, "name", "names");
    g_autofree char *glob = wb_text_printable(texts);
    g_autofree char *question = NULL;
    char when[WB_WHEN_TEXT_MAX];

    if (before)
        question = g_strdup_printf("erase the history of %s below %s, matching '%s', before %s", names, name, glob,
                                   wb_when_print(before, 0, when));
    else
        question = g_strdup_printf("%s of %s below %s, matching '%s' (-n lists them)",
                                   history_only ? "erase the entire history" : "remove all, and the entire history,",
                                   names, name, glob);
    return vrm_confirmed(place, question);
}

static void remove_matching(const struct wb_place *place, const struct wb_patterns *patterns)
{
    g_autofree char *texts = g_strjoinv(" ", pattern_texts);
    g_autoptr(GPtrArray) hits = vrm_find(place, patterns);

    if (wb_cli_interrupted())
        return;
    if (hits->len == 0) {
        wb_cli_fail(place->given, "nothing below it matches '%s', now or at any time recorded", texts);
        return;
    }
    if (!dry_run && !all_confirmed(place, hits->len, texts))
        return;
    paths_given += hits->len - 1;
    for (guint i = 0; i < hits->len && !wb_cli_interrupted(); i++) {
        const struct vrm_hit *hit = hits->pdata[i];
        struct wb_place one = {place->mount, hit->shown, hit->path};

        remove_place(&one, hit);
    }
}

/* 0, or WB_EXIT_USAGE. */
static int remove_path(const char *path, const struct wb_patterns *patterns)
{
    _cleanup_place_ struct wb_place *place =
        wb_place_find(path, dry_run && !change_text ? WB_MOUNT_READ : WB_MOUNT_WRITE);

    wb_json_separate();
    if (place && before_text && wb_time_past(place, "--before", before_text, &before) != 0)
        return WB_EXIT_USAGE;
    if (place && before && wb_moment_is_known(place, before_text, before) != 0)
        return 0;
    if (place && change_text)
        vrm_versions(place, &range);
    else if (place && patterns)
        remove_matching(place, patterns);
    else if (place)
        remove_place(place, NULL);
    return 0;
}

int main(int argc, char **argv)
{
    struct wb_patterns *patterns = NULL;
    int r = wb_cli_begin(&cli, options, &argc, &argv);

    if (r >= 0)
        return r;
    if (before_text && wb_time_past(NULL, "--before", before_text, &before) != 0)
        return WB_EXIT_USAGE;
    if (change_text && (recursive || history_only || before_text || pattern_texts))
        return wb_cli_usage("--change cannot be combined with -r, --history, --before or --pattern");
    if (change_text && !vrm_range_parse(change_text, &range))
        return wb_cli_usage("--change: '%s' is invalid; use N, or N..M with N < M; 1 is the most recent version (see "
                            "'%s'); ~~N or ~~N..M for single changes", change_text, wb_cli_tool("vstat"));
    range.dry_run = dry_run;
    range.json = json;
    if (pattern_texts && !(patterns = read_patterns()))
        return WB_EXIT_USAGE;
    r = 0;
    removed = g_ptr_array_new_with_free_func(removed_free);
    paths_given = (unsigned)argc - 1;
    for (int i = 1; r == 0 && i < argc && !wb_cli_interrupted(); i++)
        r = remove_path(argv[i], patterns);
    vrm_batch_end();
    wb_patterns_free(patterns);
    g_ptr_array_unref(removed);
    if (dry_run)
        wb_cli_stopped("nothing was changed");
    else if (!change_text)
        wb_cli_stopped("%u of %u paths %s", paths_done, paths_given,
                       history_only || before ? "forgotten" : "removed");
    else
        wb_cli_stopped("only the history reported above was erased");
    return r ? r : wb_cli_end();
}

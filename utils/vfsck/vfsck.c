/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * vfsck: is the store of a tree sound, and if not, what can be mended? It reads files only: it needs no mount, and
 * works on a store that nothing else can open any more, or beside a daemon.
 */
#include "common/cli.h"
#include "common/json.h"
#include "common/mount.h"
#include "client/path.h"
#include "common/progress.h"
#include "common/text.h"
#include "wayback/check.h"
#include "wayback/confine.h"
#include <errno.h>

/* As those of e2fsck(8). */
enum status { CLEAN = 0, REPAIRED = 1, LEFT = 4, FAILED = 8, USAGE = 16, CANCELED = 32 };

static char *store_option;
static gboolean json, look_only, preen, yes, external, rebind, verbose;

static const GOptionEntry options[] = {
    {"dry-run", 'n', 0, G_OPTION_ARG_NONE, &look_only,
     "Only check, and show what would be done (the same as without -p and -y)", NULL},
    {"preen", 'p', 0, G_OPTION_ARG_NONE, &preen, "Make safe repairs: exact ones, and those of derived data", NULL},
    {"yes", 'y', 0, G_OPTION_ARG_NONE, &yes, "Repair everything that can be repaired", NULL},
    {"external", 0, 0, G_OPTION_ARG_NONE, &external,
     "With -p or -y: mark older versions of files that were changed outside the mount as unknown", NULL},
    {"rebind", 0, 0, G_OPTION_ARG_NONE, &rebind,
     "Bind the store to a TREE that was moved or copied with it; with -y also if some files lose their history",
     NULL},
    {"store", 0, 0, G_OPTION_ARG_FILENAME, &store_option, "The store, if it is not TREE/.wayback", "DIR"},
    WB_CLI_VERBOSE(&verbose, "Also show notes, which are not errors"),
    WB_CLI_JSON(&json),
    WB_CLI_END,
};

static const struct wb_cli cli = {
    .name = "vfsck",
    .plain = true,
    .timeless = true,
    .path_word = "TREE",
    .arguments = "TREE",
    .summary = "Checks the store of a tree: every record, all recorded content, and whether the store matches the "
               "tree. Repairs it with -p or -y. Repairs save everything that they cut off or replace in .wayback/lost.",
    .examples = "  vfsck SRC            check the store; SRC may be mounted\n"
                "  vfsck -p SRC         make safe repairs (not while SRC is mounted)\n"
                "  vfsck -y SRC         make all possible repairs\n"
                "  vfsck --rebind SRC   SRC was copied with its .wayback: continue with that history\n",
    .paths_min = 1,
    .paths_max = 1,
    .usage_status = USAGE,
    .exit_text = "0 clean, 1 repaired, 4 errors left unrepaired, 8 could not check, 16 wrong usage, 32 stopped",
};

static const char *state_name(enum wb_check_state state)
{
    switch (state) {
    case WB_CHECK_NOTE: return "note";
    case WB_CHECK_WRONG: return "wrong";
    case WB_CHECK_REPAIRED: return "repaired";
    case WB_CHECK_LOST: break;
    }
    return "lost";
}

static void print_json(const struct wb_check_finding *finding)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();

    json_builder_begin_object(builder);
    wb_json_string(builder, "state", state_name(finding->state));
    wb_json_string(builder, "code", finding->code);
    if (finding->file)
        wb_json_string(builder, "file", finding->file);
    if (finding->path)
        wb_json_string(builder, "path", finding->path);
    if (finding->to > 0) {
        wb_json_int(builder, "from", (int64_t)finding->from);
        wb_json_int(builder, "to", (int64_t)finding->to);
    }
    wb_json_string(builder, "text", finding->text);
    wb_json_string(builder, "remedy", finding->remedy);
    json_builder_end_object(builder);
    wb_json_list_add(builder);
}

static void print_text(const struct wb_check_finding *finding)
{
    g_autofree char *place = wb_text_printable(finding->path ? finding->path : finding->file ? finding->file : "");

    printf("%s: %s: %s", state_name(finding->state), finding->code, place);
    if (finding->to > 0)
        printf(" %" G_GUINT64_FORMAT "..%" G_GUINT64_FORMAT, finding->from, finding->to);
    printf("%s%s", *place || finding->to ? ": " : "", finding->text);
    if (*finding->remedy)
        printf("; %s", finding->remedy);
    putchar('\n');
}

static void found(const struct wb_check_finding *finding, void *data)
{
    (void)data;
    wb_progress_clear();
    if (json)
        print_json(finding);
    else if (finding->state != WB_CHECK_NOTE || verbose)
        print_text(finding);
}

static bool progress(uint64_t files, uint64_t bytes, void *data)
{
    (void)data;
    wb_progress_add(files, bytes);
    return !wb_cli_interrupted();
}

static void print_summary(const struct wb_check_result *result)
{
    char size[WB_TEXT_SIZE_MAX];

    printf("%" G_GUINT64_FORMAT " records in %" G_GUINT64_FORMAT " files, %s; %" G_GUINT64_FORMAT
           " entries in the tree: %s",
           result->records, result->files, wb_text_size(result->bytes, size), result->entries,
           result->wrong + result->lost + result->repaired ? "" : "clean\n");
    if (result->wrong + result->lost + result->repaired)
        printf("%" G_GUINT64_FORMAT " repaired, %" G_GUINT64_FORMAT " can be repaired, %" G_GUINT64_FORMAT " lost\n",
               result->repaired, result->wrong, result->lost);
}

static void end_json(const struct wb_check_result *result)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();

    json_builder_begin_object(builder);
    wb_json_int(builder, "records", (int64_t)result->records);
    wb_json_int(builder, "files", (int64_t)result->files);
    wb_json_int(builder, "bytes", (int64_t)result->bytes);
    wb_json_int(builder, "entries", (int64_t)result->entries);
    wb_json_int(builder, "wrong", (int64_t)result->wrong);
    wb_json_int(builder, "lost", (int64_t)result->lost);
    wb_json_int(builder, "repaired", (int64_t)result->repaired);
    wb_json_bool(builder, "online", result->online);
    json_builder_end_object(builder);
    wb_json_list_end(builder);
}

static int check(const char *given)
{
    static const struct wb_check_listener listener = {.found = found, .progress = progress};
    g_autofree char *tree = g_strdup(given);
    g_autofree char *store = store_option ? wb_path_absolute(store_option) : NULL;
    unsigned flags = (preen || (rebind && !look_only) ? WB_CHECK_REPAIR : 0) |
                     (yes ? WB_CHECK_REPAIR | WB_CHECK_REPAIR_ALL : 0) | (external ? WB_CHECK_EXTERNAL : 0) |
                     (rebind ? WB_CHECK_REBIND : 0);
    struct wb_check_result result = {0};
    struct wb_error why = {""};
    int r;

    if (wb_tree_behind(given, &tree, &store) != 0)
        return FAILED;
    if (json)
        wb_json_list_begin(NULL, "findings");
    wb_progress_begin();
    r = wb_confine_store(&tree, &store, flags & WB_CHECK_REPAIR ? WB_CONFINE_CHANGES : 0, &why);
    if (r == 0)
        r = wb_check_store(tree, store, flags, &listener, &result, &why);
    wb_progress_clear();
    if (r < 0)
        wb_cli_fail(given, "%s", why.text);
    /* What was not looked at whole is not called clean. */
    if (json)
        end_json(&result);
    else if (r == 0)
        print_summary(&result);
    if (r < 0)
        return r == -ECANCELED ? CANCELED : FAILED;
    return result.wrong + result.lost > 0 ? LEFT : result.repaired > 0 ? REPAIRED : CLEAN;
}

int main(int argc, char **argv)
{
    int r = wb_cli_begin(&cli, options, &argc, &argv), status;

    if (r >= 0)
        return r;
    if (look_only && (preen || yes))
        return wb_cli_usage("-n cannot be combined with -p or -y");
    if (preen && yes)
        return wb_cli_usage("-p and -y exclude each other");
    if (external && !preen && !yes)
        return wb_cli_usage("--external changes the store and requires -p or -y");
    if (rebind && (preen || external))
        return wb_cli_usage("--rebind can be combined with -n and -y only");
    status = check(argv[1]);
    r = wb_cli_end();
    return status ? status : r == 0 ? CLEAN : FAILED;
}

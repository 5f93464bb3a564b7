/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * vstore: where the store of a tree is, and moving it elsewhere. It works on the files of the store, not through a
 * mount: the tree must not be mounted while its store changes place.
 */
#include "common/cli.h"
#include "common/control.h"
#include "common/fd.h"
#include "common/json.h"
#include "common/path.h"
#include "common/progress.h"
#include "common/text.h"
#include "wayback/move.h"
#include <errno.h>
#include <fcntl.h>

static char *store_option;
static gboolean json, look_only, ahead;

static const GOptionEntry options[] = {
    WB_CLI_DRY_RUN(&look_only),
    {"ahead", 0, 0, G_OPTION_ARG_NONE, &ahead,
     "Only copy, so that the move itself takes less; also while it is mounted", NULL},
    {"store", 's', 0, G_OPTION_ARG_FILENAME, &store_option, "Where the store is, if the tree does not tell", "DIR"},
    WB_CLI_JSON(&json),
    WB_CLI_END,
};

static const struct wb_cli cli = {
    .name = "vstore",
    .plain = true,
    .timeless = true,
    .path_word = "TREE",
    .arguments = "move TREE DIR | status TREE",
    .summary = "Moves the store of a tree to the directory DIR, on the same disk or another; TREE/.wayback brings it "
               "back. The tree must not be mounted meanwhile. What is interrupted goes on when it is asked for again.",
    .examples = "  vstore move SRC /mnt/disk/history     from now on the history of SRC is kept there\n"
                "  vstore move -n SRC /mnt/disk/history  how much would be copied, and is there room?\n"
                "  vstore move --ahead SRC DIR           copy while SRC is in use; then unmount it and move\n"
                "  vstore move SRC SRC/.wayback          back into the tree\n"
                "  vstore status SRC                     where is the store?\n",
    .paths_min = 2,
    .paths_max = 3,
};

static bool progress(uint64_t files, uint64_t bytes, void *data)
{
    (void)data;
    wb_progress_add(files, bytes);
    return !wb_cli_interrupted();
}

/* A mount stands for the tree behind it, which is reached through the daemon's own descriptors. */
static void look_behind_mount(char **tree, char **store)
{
    _cleanup_fd_ int fd = open(*tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    g_autofree struct wb_control_hello *hello = g_new0(struct wb_control_hello, 1);

    if (fd < 0 || wb_control_hello(fd, hello) < 0)
        return;
    g_free(*tree);
    *tree = hello->source_fd < 0 ? g_strdup(hello->source)
                                 : g_strdup_printf("/proc/%u/fd/%d", hello->pid, hello->source_fd);
    if (!*store && hello->store_fd >= 0)
        *store = g_strdup_printf("/proc/%u/fd/%d", hello->pid, hello->store_fd);
}

static void print_json(const struct wb_move_result *result, bool moving)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();

    json_builder_begin_object(builder);
    wb_json_string(builder, moving ? "from" : "store", result->from);
    if (*result->to)
        wb_json_string(builder, moving || !result->coming ? moving ? "to" : "remains" : "coming_from", result->to);
    if (moving) {
        wb_json_int(builder, "files", (int64_t)result->files);
        wb_json_int(builder, "bytes", (int64_t)result->bytes);
        wb_json_int(builder, "there", (int64_t)result->there);
        wb_json_int(builder, "room", (int64_t)result->room);
        wb_json_bool(builder, "moved", result->moved);
    } else {
        wb_json_bool(builder, "in_tree", !result->apart);
    }
    json_builder_end_object(builder);
    wb_json_print(stdout, builder);
    putchar('\n');
}

static void print_move(const struct wb_move_result *result)
{
    g_autofree char *to = wb_text_printable(result->to);
    char size[WB_TEXT_SIZE_MAX], room[WB_TEXT_SIZE_MAX];

    wb_text_size(result->bytes, size);
    if (look_only && result->moved)
        printf("the store is in %s already\n", to);
    else if (look_only)
        printf("%" G_GUINT64_FORMAT " files would be copied to %s, %s; %s are free there\n", result->files, to, size,
               wb_text_size(result->room, room));
    else
        printf("%s %s; copied: %" G_GUINT64_FORMAT " files, %s\n",
               result->moved ? "the store is now in" : "the store is not moved yet, but copied ahead to", to,
               result->files, size);
}

static int move(const char *given, const char *to_given)
{
    g_autofree char *tree = g_strdup(given);
    g_autofree char *store = store_option ? wb_path_absolute(store_option) : NULL;
    g_autofree char *to = wb_path_absolute(to_given);
    g_autofree struct wb_move_result *result = g_new0(struct wb_move_result, 1);
    struct wb_problem why = {""};
    int r;

    look_behind_mount(&tree, &store);
    wb_progress_begin();
    r = wb_store_move(tree, store, to, (look_only ? WB_MOVE_DRY_RUN : 0) | (ahead ? WB_MOVE_AHEAD : 0), progress, NULL,
                      result, &why);
    wb_progress_clear();
    if (r == -EBUSY)
        return wb_cli_fail(given, "%s (a store does not change place while it is written; --ahead copies what there "
                           "is)", why.text);
    if (r < 0)
        return wb_cli_fail(given, "%s", why.text);
    if (json)
        print_json(result, true);
    else
        print_move(result);
    return 0;
}

static int status(const char *given)
{
    g_autofree char *tree = g_strdup(given);
    g_autofree char *store = store_option ? wb_path_absolute(store_option) : NULL;
    g_autofree struct wb_move_result *result = g_new0(struct wb_move_result, 1);
    g_autofree char *from = NULL, *to = NULL;
    struct wb_problem why = {""};

    look_behind_mount(&tree, &store);
    if (wb_store_where(tree, store, result, &why) < 0)
        return wb_cli_fail(given, "%s", why.text);
    if (json) {
        print_json(result, false);
        return 0;
    }
    from = wb_text_printable(result->from);
    to = wb_text_printable(result->to);
    printf("the store is in %s%s\n", from, result->apart ? "" : ", in the tree");
    if (result->coming)
        printf("it came from %s, and has not arrived whole: mount the tree, or move it there again\n", to);
    else if (*to)
        printf("it came from %s, where something is left to be removed: vstore move to where it is does that\n", to);
    return 0;
}

int main(int argc, char **argv)
{
    int r = wb_cli_begin(&cli, options, &argc, &argv);

    if (r >= 0)
        return r;
    if (look_only && ahead)
        return wb_cli_usage("either -n or --ahead");
    if (strcmp(argv[1], "move") == 0 && argc == 4) {
        move(argv[2], argv[3]);
    } else if (strcmp(argv[1], "status") == 0 && argc == 3) {
        if (look_only || ahead)
            return wb_cli_usage("status changes nothing: it goes with neither -n nor --ahead");
        status(argv[2]);
    } else {
        return wb_cli_usage("move TREE DIR, or status TREE");
    }
    return wb_cli_end();
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * vstore: where the store of a tree is, and moving it elsewhere. It works on the files of the store; where the tree is
 * mounted, it copies ahead, and the daemon, which has the store, makes the move.
 */
#include "common/cli.h"
#include "client/control.h"
#include "client/fd.h"
#include "common/json.h"
#include "common/mount.h"
#include "client/path.h"
#include "common/progress.h"
#include "common/text.h"
#include "wayback/move.h"
#include "wayback/server.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *store_option;
static gboolean json, look_only, ahead;
static int64_t pause_ns; /* so long those who use the tree waited */

static const GOptionEntry options[] = {
    WB_CLI_DRY_RUN(&look_only),
    {"ahead", 0, 0, G_OPTION_ARG_NONE, &ahead,
     "Only copy, so that the move itself takes less time", NULL},
    {"store", 0, 0, G_OPTION_ARG_FILENAME, &store_option, "The present store, if the tree does not record it", "DIR"},
    WB_CLI_JSON(&json),
    WB_CLI_END,
};

static const struct wb_cli cli = {
    .name = "vstore",
    .plain = true,
    .timeless = true,
    .path_word = "TREE",
    .arguments = "move TREE DIR | status TREE",
    .summary = "Moves the store of a tree to the directory DIR, on the same disk or another one; with TREE/.wayback as "
               "DIR, back into the tree. A mounted tree can be used meanwhile; processes that use it wait only "
               "briefly. To continue an interrupted move, run the same command again.",
    .examples = "  vstore move SRC /mnt/disk/history     move the history of SRC to another disk\n"
                "  vstore move -n SRC /mnt/disk/history  show how much would be copied and whether it fits\n"
                "  vstore move --ahead SRC DIR           copy now, to make a later move shorter\n"
                "  vstore move SRC SRC/.wayback          move it back into the tree\n"
                "  vstore status SRC                     show the place of the store\n",
    .paths_min = 2,
    .paths_max = 3,
};

static bool progress(uint64_t files, uint64_t bytes, void *data)
{
    (void)data;
    wb_progress_add(files, bytes);
    return !wb_cli_interrupted();
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
        wb_json_int(builder, "pause_ms", pause_ns / 1000000);
    } else {
        wb_json_bool(builder, "in_tree", !result->apart);
    }
    json_builder_end_object(builder);
    wb_json_document(builder);
}

static void print_move(const struct wb_move_result *result)
{
    g_autofree char *to = wb_text_printable(result->to);
    char size[WB_TEXT_SIZE_MAX], room[WB_TEXT_SIZE_MAX];

    wb_text_size(result->bytes, size);
    if (look_only && result->moved)
        printf("the store is already in %s\n", to);
    else if (look_only)
        printf("%" G_GUINT64_FORMAT " files would be copied to %s, %s; %s free there\n", result->files, to, size,
               wb_text_size(result->room, room));
    else
        printf("%s %s; copied: %" G_GUINT64_FORMAT " files, %s\n",
               result->moved ? "the store is now in" : "the store was copied, but not moved yet, to", to,
               result->files, size);
    if (pause_ns > 0)
        printf("processes that use the tree waited for %" G_GINT64_FORMAT " ms\n", pause_ns / 1000000);
}

/* ---- while it is mounted ----------------------------------------------------------------------- */

/* Less than so many files the daemon copies in a moment. */
#define FEW 64
#define ROUNDS_MAX 8
/* What is under way in the mount may take long: tried again so often, with a second in between. */
#define TRIES 60

struct mounted {
    int fd;
    struct wb_control_hello hello;
    const char *given;
    char *to; /* absolute; "": in the tree */
};

/* Whether DIR is TREE/.wayback, by whichever name: a mount does not show it. */
static bool is_inside(const struct mounted *mounted, const char *to)
{
    g_autofree char *parent = g_path_get_dirname(to), *name = g_path_get_basename(to);
    g_autofree char *source = g_build_filename(mounted->hello.source, ".wayback", NULL);
    struct wb_control_hello hello;
    struct stat a, b;
    int fd;
    bool is;

    if (strcmp(name, ".wayback") != 0)
        return false;
    if (strcmp(to, source) == 0)
        return true;
    fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    is = fd >= 0 && fstat(fd, &a) == 0 && stat(mounted->hello.source, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
    /* The root of the mount. */
    if (!is && fd >= 0 && wb_request_hello(fd, &hello) == 0 && strcmp(hello.source, mounted->hello.source) == 0)
        is = fstat(fd, &a) == 0 && fstatat(fd, "..", &b, 0) == 0 && a.st_dev != b.st_dev;
    if (fd >= 0)
        close(fd);
    return is;
}

/* As the user of the daemon, to whom the store belongs; anybody else leaves it to the daemon. */
static bool may_copy(const struct mounted *mounted)
{
    uid_t user;

    return wb_server_user(mounted->fd, &user) == 0 && user == geteuid();
}

/* Whether the store is there already; then the daemon completes a move that could not end. */
static bool is_there(const char *tree, const char *store, const char *to)
{
    g_autofree char *inside = g_strconcat(tree, "/.wayback", NULL);
    struct stat a, b;

    return stat(store ? store : inside, &a) == 0 && stat(to, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Until little is left, or it gets no less. */
static int copy_ahead(const struct mounted *mounted, struct wb_move_result *result, struct wb_error *why)
{
    g_autofree char *tree = NULL, *store = NULL, *to = NULL;
    _cleanup_fd_ int tree_fd = -1, store_fd = -1;
    uint64_t files = 0, bytes = 0, before = G_MAXUINT64;
    char link[WB_FD_PATH_MAX];
    int r = wb_server_open(mounted->fd, &mounted->hello, &tree_fd, &store_fd);

    if (r < 0)
        return wb_error_set(why, r, "%s", r == -EBADMSG ? WB_SERVER_NOT_BELIEVED : wb_errno_text(-r));
    tree = g_strdup(wb_fd_proc_path(tree_fd, link));
    store = store_fd < 0 ? NULL : g_strdup(wb_fd_proc_path(store_fd, link));
    to = *mounted->to ? g_strdup(mounted->to) : g_strconcat(tree, "/.wayback", NULL);
    if (is_there(tree, store, to))
        return 0;
    for (unsigned round = 0; r == 0 && round < ROUNDS_MAX && !result->moved; round++) {
        r = wb_store_move(tree, store, to, WB_MOVE_AHEAD, progress, NULL, result, why);
        files += result->files;
        bytes += result->bytes;
        if (result->files <= FEW || result->files >= before)
            break;
        before = result->files;
    }
    result->files = files;
    result->bytes = bytes;
    return r;
}

static int ask(const struct mounted *mounted, unsigned flags, struct wb_control_moved *moved)
{
    int r = wb_request_move(mounted->fd, mounted->to, flags, moved);

    if (r == -EPERM)
        return wb_cli_fail(mounted->given, "not permitted: only root and the user who mounted may move the store");
    if (r == -EREMOTE)
        return wb_cli_fail(mounted->given, "%s", wb_errno_text(r));
    if (r == -EBUSY)
        return wb_cli_fail(mounted->given, "another move or a prune (vprune) is running; try again later");
    if (r == -EINVAL || r == -ENOTTY)
        return wb_cli_fail(mounted->given, "the daemon of the mount is too old for this; unmount it first, or unmount "
                           "and mount it again");
    return r < 0 ? wb_cli_fail(mounted->given, "the mount does not answer: %s", wb_errno_text(r)) : 0;
}

static int move_mounted(const struct mounted *mounted, struct wb_move_result *result)
{
    g_autofree struct wb_control_moved *moved = g_new0(struct wb_control_moved, 1);
    struct wb_error why = {""};
    int r = ask(mounted, WB_CONTROL_MOVE_CHECK, moved);

    if (r == 0 && moved->error)
        return wb_cli_fail(mounted->given, "%s", moved->text);
    if (r == 0 && may_copy(mounted)) {
        r = copy_ahead(mounted, result, &why);
        if (r < 0)
            wb_cli_fail(mounted->given, "%s", why.text);
    }
    if (r < 0)
        return r;
    for (unsigned tries = 0; tries < TRIES && !wb_cli_interrupted(); tries++) {
        r = ask(mounted, 0, moved);
        if (r < 0 || moved->error != EAGAIN)
            break;
        g_usleep(G_USEC_PER_SEC);
    }
    wb_progress_clear();
    if (r == 0 && moved->error)
        r = wb_cli_fail(mounted->given, "%s", moved->text);
    result->files += moved->files;
    result->bytes += moved->bytes;
    result->moved = moved->moved;
    pause_ns = moved->pause;
    if (*mounted->to)
        g_strlcpy(result->to, mounted->to, sizeof(result->to));
    else
        g_snprintf(result->to, sizeof(result->to), "%s/.wayback", mounted->hello.source);
    return r;
}

/* ---- the commands ------------------------------------------------------------------------------ */

/* The store would be reached through itself, and each copy to there is a change of the tree. */
static bool is_in_mount(const char *to)
{
    g_autofree char *parent = g_path_get_dirname(to), *name = g_path_get_basename(to);
    struct wb_control_hello hello;
    int fd = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool is;

    /* No mount shows that: it is the source's. */
    if (strcmp(name, ".wayback") == 0) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    if (fd < 0)
        fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return false;
    is = wb_request_hello(fd, &hello) == 0;
    close(fd);
    return is;
}

static int move(const char *given, const char *to_given)
{
    g_autofree char *tree = g_strdup(given);
    g_autofree char *store = store_option ? wb_path_absolute(store_option) : NULL;
    g_autofree char *to = wb_path_absolute(to_given);
    g_autofree struct wb_move_result *result = g_new0(struct wb_move_result, 1);
    struct mounted mounted = {.fd = -1, .given = given, .to = to};
    struct wb_error why = {""};
    int r;

    if (is_in_mount(to))
        return wb_cli_fail(given, "%s is in a Wayback mount; choose a directory outside", to);
    if (wb_tree_behind(given, &tree, &store) != 0)
        return -EINVAL;
    wb_progress_begin();
    if (!look_only && !ahead)
        mounted.fd = wb_mount_of_tree(given, &mounted.hello);
    if (mounted.fd >= 0) {
        if (is_inside(&mounted, to))
            *to = '\0';
        r = move_mounted(&mounted, result);
        close(mounted.fd);
        wb_progress_clear();
        if (r < 0)
            return r;
    } else {
        r = wb_store_move(tree, store, to, (look_only ? WB_MOVE_DRY_RUN : 0) | (ahead ? WB_MOVE_AHEAD : 0), progress,
                          NULL, result, &why);
        wb_progress_clear();
        if (r < 0)
            return wb_cli_fail(given, "%s", why.text);
    }
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
    struct wb_error why = {""};

    if (wb_tree_behind(given, &tree, &store) != 0)
        return WB_EXIT_FAILED;
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
        printf("the move from %s is incomplete; mount the tree, or run the same move again\n", to);
    else if (*to)
        printf("the former place %s still has files; run vstore move to the present place to remove them\n", to);
    return 0;
}

int main(int argc, char **argv)
{
    int r = wb_cli_begin(&cli, options, &argc, &argv);

    if (r >= 0)
        return r;
    if (look_only && ahead)
        return wb_cli_usage("-n and --ahead exclude each other");
    if (strcmp(argv[1], "move") == 0 && argc == 4) {
        move(argv[2], argv[3]);
    } else if (strcmp(argv[1], "status") == 0 && argc == 3) {
        if (look_only || ahead)
            return wb_cli_usage("status cannot be combined with -n or --ahead");
        status(argv[2]);
    } else {
        return wb_cli_usage("use 'move TREE DIR' or 'status TREE'");
    }
    return wb_cli_end();
}

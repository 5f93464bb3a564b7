/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * vdisable: the reverse of venable. The mount ends, the unit or the line of fstab is removed, and the directory is a
 * plain one again; its history remains, or is removed as well.
 */
#include "client/fd.h"
#include "client/path.h"
#include "common/cli.h"
#include "common/json.h"
#include "common/mount.h"
#include "common/text.h"
#include "service/busy.h"
#include "service/program.h"
#include "service/settings.h"
#include "service/unit.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* A program that has just ended may still close its files; the daemon then writes its history to the disk. */
#define TRIES 40
#define PAUSE_US 25000
#define END_TRIES 2400

static char *root;
static gboolean forget, yes, dry_run, json;

static const GOptionEntry options[] = {
    {"forget-history", 0, 0, G_OPTION_ARG_NONE, &forget, "Remove the history: no past state remains", NULL},
    {"yes", 'y', 0, G_OPTION_ARG_NONE, &yes, "Do not ask", NULL},
    {"root", 0, 0, G_OPTION_ARG_FILENAME, &root, "Use systemd and fstab below ROOT (for tests)", "ROOT"},
    WB_CLI_DRY_RUN(&dry_run),
    WB_CLI_JSON(&json),
    WB_CLI_END,
};

static const struct wb_cli cli = {
    .name = "vdisable",
    .arguments = "DIR",
    .path_word = "DIR",
    .summary = "Ends the recording of DIR: unmounts it, and removes the unit of systemd or the\n"
               "line of fstab that venable wrote. DIR is a plain directory again. Its history\n"
               "remains, and venable continues it.",
    .examples = "  vdisable ~/Documents                        unmount it, and keep its history\n"
                "  vdisable -y --forget-history ~/Documents    remove its whole history as well\n"
                "  vdisable -n ~/Documents                     only show what would be done\n",
    .plain = true,
    .timeless = true,
    .paths_min = 1,
    .paths_max = 1,
};

static struct wb_unit unit;
static struct wb_settings settings;
static bool has_history;

/* A step of the document of --json. */
static void report_json(const char *step, const char *detail)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();

    json_builder_begin_object(builder);
    wb_json_string(builder, "step", step);
    wb_json_string(builder, "detail", detail);
    json_builder_end_object(builder);
    wb_json_list_add(builder);
}

static void begin_json(void)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();

    json_builder_begin_object(builder);
    wb_json_string(builder, "path", unit.directory);
    wb_json_bool(builder, "dry_run", dry_run);
    json_builder_end_object(builder);
    wb_json_list_begin(builder, "steps");
}

static void end_json(void)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();

    json_builder_begin_object(builder);
    wb_json_bool(builder, "history", has_history && (!forget || dry_run));
    json_builder_end_object(builder);
    wb_json_list_end(builder);
}

/* "removed F", or "would remove F"; `step` in JSON. */
static void report(const char *step, const char *done, const char *would, const char *text)
{
    g_autofree char *shown = wb_text_printable(text);

    if (json)
        report_json(step, text);
    else
        printf("%s %s\n", dry_run ? would : done, shown);
}

/* ---- unmounting ------------------------------------------------------------------------------------------ */

static int fail_busy(pid_t daemon, const char *said)
{
    g_autoptr(GPtrArray) holders = wb_busy_find(unit.directory, daemon);
    g_autofree char *text = wb_busy_print(holders);

    if (*text)
        return wb_cli_fail(unit.directory, "it is in use by %s; end these, or leave the directory, and try again; "
                           "nothing was changed", text);
    return wb_cli_fail(unit.directory, "it cannot be unmounted (%s); nothing was changed", said);
}

static bool has_ended(pid_t daemon)
{
    g_autofree char *proc = g_strdup_printf("/proc/%d", (int)daemon);

    return daemon <= 0 || access(proc, F_OK) < 0;
}

static int unmount_now(const struct wb_mount *mount)
{
    pid_t daemon = mount ? (pid_t)mount->hello.pid : 0;
    g_autofree char *said = NULL;
    int status = -1;

    if (dry_run) {
        g_autoptr(GPtrArray) holders = wb_busy_find(unit.directory, daemon);

        report("unmount", "", "would unmount", unit.directory);
        return holders->len > 0 ? fail_busy(daemon, "") : 0;
    }
    for (int i = 0; i < TRIES && status != 0 && !wb_cli_interrupted(); i++) {
        if (i > 0)
            g_usleep(PAUSE_US);
        status = wb_unit_unmount(&unit, &said);
    }
    if (status != 0)
        return wb_cli_interrupted() ? WB_EXIT_FAILED : fail_busy(daemon, said);
    for (int i = 0; i < END_TRIES && !has_ended(daemon); i++)
        g_usleep(PAUSE_US);
    report("unmount", "unmounted", "", unit.directory);
    return 0;
}

/* ---- the history ----------------------------------------------------------------------------------------- */

/* 0 or -errno: -ENOENT is 0. */
static int remove_in(const char *directory, const char *name)
{
    _cleanup_fd_ int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = fd < 0 ? -errno : wb_fd_remove_all(fd, name);

    return r == -ENOENT ? 0 : r;
}

/* A store outside of the tree: the directory stays if it is not empty then, or is the root of a mount. */
static int remove_store_apart(void)
{
    _cleanup_fd_ int fd = open(settings.store, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    g_autoptr(GPtrArray) names = fd < 0 ? NULL : wb_fd_names(fd);
    int r = 0;

    if (!names)
        return -errno;
    for (guint i = 0; i < names->len && r == 0; i++)
        r = wb_fd_remove_all(fd, names->pdata[i]);
    if (r == 0)
        rmdir(settings.store);
    return r;
}

/* The lock of the store, until this process ends. A daemon that mounts the tree elsewhere has it, or vfsck. */
static int lock_store(void)
{
    g_autofree char *path = g_build_filename(settings.store, "lock", NULL);
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
        return 0;
    if (fd >= 0 && errno == EWOULDBLOCK)
        return wb_cli_fail(settings.store, "it is in use by another process, perhaps by a mount of the tree at another "
                           "place (wayback mounts); nothing was removed");
    return wb_cli_fail(settings.store, "cannot be locked (%s); nothing was removed", wb_errno_text(errno));
}

static int forget_history(void)
{
    bool apart = !wb_path_below(settings.store, unit.directory, NULL);
    int r = dry_run ? 0 : lock_store();

    if (r != 0)
        return r;
    report("remove", "removed", "would remove", settings.store);
    if (dry_run)
        return 0;
    if (apart)
        r = remove_store_apart();
    if (r == 0)
        r = remove_in(unit.directory, ".wayback");
    if (r == 0)
        r = remove_in(unit.directory, ".wayback-staging");
    return r < 0 ? wb_cli_fail(settings.store, "cannot be removed completely (%s); remove the rest with rm -r",
                               wb_errno_text(-r))
                 : 0;
}

/* The history of DIR itself, not that of a tree around it. */
static int find_history(bool mounted)
{
    g_autofree char *tree = mounted ? g_strdup(unit.directory) : wb_tree_above(unit.directory);
    g_autofree char *question = NULL;

    has_history = tree && strcmp(tree, unit.directory) == 0;
    if (!forget)
        return 0;
    if (!has_history && tree)
        return wb_cli_fail(unit.directory, "it has no history of its own: it is a part of %s", tree);
    if (!has_history)
        return 0;
    if (wb_settings_open(unit.directory, &settings) != 0)
        return WB_EXIT_FAILED;
    question = g_strdup_printf("remove all past states of %s (%s)", unit.directory, settings.store);
    if (!yes && !dry_run && !wb_cli_confirm(unit.directory, question, "nothing was changed"))
        return WB_EXIT_FAILED;
    return 0;
}

/* ---- all of it ------------------------------------------------------------------------------------------- */

static void conclude(void)
{
    g_autofree char *word = wb_text_shell(unit.directory), *shown = wb_text_printable(unit.directory);

    if (dry_run || json)
        return;
    printf("%s is a plain directory again\n", shown);
    if (has_history && !forget)
        printf("  %-9sit remains; to continue it: wayback enable %s; to remove it: wayback disable --forget-history "
               "%s\n", "history", word, word);
}

/* The mount at DIR is not one of DIR itself, or DIR is only a part of it. */
static int check_mount(void)
{
    g_autoptr(GPtrArray) list = wb_listed_mounts();
    const struct wb_listed *listed = wb_listed_of(list, unit.directory);

    if (!listed || !wb_listed_is_wayback(listed) || strcmp(listed->source, listed->point) == 0)
        return 0;
    return wb_cli_fail(unit.directory, "it is in the mount %s of %s, which is not in place; to end that mount: wayback "
                       "unmount %s", listed->point, listed->source, listed->point);
}

static int check_part(void)
{
    g_autoptr(GPtrArray) list = wb_listed_mounts();
    const struct wb_listed *listed = wb_listed_of(list, unit.directory);

    if (!listed || !wb_listed_is_wayback(listed) || strcmp(listed->point, unit.directory) == 0)
        return 0;
    return wb_cli_fail(unit.directory, "it is a part of %s, which is recorded as a whole; name that directory",
                       listed->point);
}

static int end_way(enum wb_way way)
{
    g_autofree char *described = NULL;

    if (way == WB_WAY_NONE)
        return 0;
    described = wb_unit_describe(&unit, way);
    report("remove", "removed", "would remove", described);
    return dry_run ? 0 : wb_unit_remove(&unit, way);
}

/* Neither our own descriptors nor our place may keep it busy. */
static int let_go(struct wb_mount *mount)
{
    if (settings.store_fd >= 0)
        close(settings.store_fd);
    settings.store_fd = -1;
    if (mount)
        close(mount->root_fd);
    if (mount)
        mount->root_fd = -1;
    return chdir("/") < 0 ? wb_cli_fail("/", "%s", wb_errno_text(errno)) : 0;
}

static int carry_out(void)
{
    struct wb_mount *mount = wb_unit_mount(unit.directory);
    enum wb_way way = wb_unit_find(&unit);
    bool mounted = mount || wb_unit_is_mounted(unit.directory);
    int r = check_mount();

    if (r == 0)
        r = check_part();
    if (r == 0 && way != WB_WAY_NONE && way != WB_WAY_USER && geteuid() != 0)
        r = wb_cli_fail(unit.directory, "root enabled it, and only root can disable it");
    if (r == 0)
        r = find_history(mounted);
    if (r == 0 && !mounted && way == WB_WAY_NONE && !(forget && has_history)) {
        g_autofree char *shown = wb_text_printable(unit.directory);

        if (!json)
            printf("%s is not enabled; nothing to change\n", shown);
        return 0;
    }
    if (r == 0)
        r = let_go(mount);
    if (r == 0 && mounted)
        r = unmount_now(mount);
    if (r == 0)
        r = end_way(way);
    if (r == 0 && forget && has_history)
        r = forget_history();
    wb_mount_free(mount);
    if (r == 0)
        conclude();
    return r;
}

int main(int argc, char **argv)
{
    g_autofree char *directory = NULL;
    int r = wb_cli_begin(&cli, options, &argc, &argv);

    if (r >= 0)
        return r;
    settings.store_fd = -1;
    directory = realpath(argv[1], NULL);
    if (!directory && errno == ENOTCONN)
        directory = wb_path_absolute(argv[1]);
    if (!directory)
        return wb_cli_fail(argv[1], "%s", wb_errno_text(errno));
    wb_unit_init(&unit, root, directory, NULL);
    wb_cli_stopped("run the same command again to complete it");
    if (json)
        begin_json();
    r = carry_out();
    if (json)
        end_json();
    wb_settings_clear(&settings);
    wb_unit_clear(&unit);
    return MAX(r, wb_cli_end());
}

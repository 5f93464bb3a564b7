/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * vdisable: the reverse of venable. The mount ends, the unit or the line of fstab is removed, and the directory is a
 * plain one again; its history remains, or is removed as well.
 */
#include "client/fd.h"
#include "client/path.h"
#include "common/cli.h"
#include "common/mount.h"
#include "common/text.h"
#include "service/busy.h"
#include "service/program.h"
#include "service/settings.h"
#include "service/steps.h"
#include "service/unit.h"
#include "wayback/move.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* "removed F", or "would remove F"; `step` in JSON. */
static void report(const char *step, const char *done, const char *would, const char *text)
{
    g_autofree char *shown = wb_text_printable(text);

    if (json)
        wb_steps_add(step, text);
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
static int remove_name(int dir_fd, const char *name)
{
    int r = wb_fd_remove_all(dir_fd, name);

    return r == -ENOENT ? 0 : r;
}

/* Its header last: until then the same command finds the store again, and removes the rest. */
static const char *const at_the_end[] = {"header", "lock", NULL};

/*
 * A store outside of the tree: only entries of a store are removed, and the directory if nothing else is in it and it
 * is not the root of a mount. *ret_left is the number of entries that are not of a store, *ret_first one of them.
 */
static int remove_store_apart(const struct wb_removal *removal, guint *ret_left, char **ret_first)
{
    g_autoptr(GPtrArray) names = wb_fd_names(removal->store_fd);
    int r = names ? 0 : -errno;

    for (guint i = 0; r == 0 && i < names->len; i++) {
        const char *name = names->pdata[i];

        if (g_strv_contains(at_the_end, name) || strcmp(name, "lost+found") == 0)
            continue;
        if (wb_store_has_name(name))
            r = remove_name(removal->store_fd, name);
        else if ((*ret_left)++ == 0)
            *ret_first = g_strdup(name);
    }
    for (const char *const *name = at_the_end; r == 0 && *name; name++)
        r = remove_name(removal->store_fd, *name);
    if (r == 0 && *ret_left == 0)
        rmdir(removal->store);
    return r;
}

/* Deleted files are in the tree, if the store is on another device. What leads to the store goes after it. */
static int remove_history(const struct wb_removal *removal, guint *ret_left, char **ret_first)
{
    int r = remove_name(removal->tree_fd, ".wayback-staging");

    if (r == 0 && removal->apart)
        r = remove_store_apart(removal, ret_left, ret_first);
    return r == 0 ? remove_name(removal->tree_fd, ".wayback") : r;
}

/* The mount had another store than the tree itself leads to, if that names none. */
static int open_store(struct wb_removal *removal)
{
    struct wb_error why = {""};
    int r = wb_store_open_to_remove(unit.directory, NULL, removal, &why);

    if (r == -ENOENT && !wb_path_below(settings.store, unit.directory, NULL)) {
        why = (struct wb_error){""};
        r = wb_store_open_to_remove(unit.directory, settings.store, removal, &why);
    }
    return r < 0 ? wb_cli_fail(unit.directory, "its history was not removed: %s", why.text) : 0;
}

static void close_store(struct wb_removal *removal)
{
    close(removal->tree_fd);
    close(removal->store_fd);
    if (removal->lock_fd >= 0)
        close(removal->lock_fd);
}

static int forget_history(void)
{
    struct wb_removal removal;
    g_autofree char *first = NULL;
    guint left = 0;
    int r;

    if (dry_run) {
        report("remove", "", "would remove", settings.store);
        return 0;
    }
    if (open_store(&removal) != 0)
        return WB_EXIT_FAILED;
    r = remove_history(&removal, &left, &first);
    close_store(&removal);
    if (r < 0)
        return wb_cli_fail(removal.store, "it cannot be removed completely (%s); run the same command again to remove "
                           "the rest", wb_errno_text(-r));
    report("remove", "removed", "", removal.store);
    if (left > 0)
        wb_cli_warn(removal.store, "the history is removed, but not this directory: it has %u %s that Wayback did not "
                    "create (%s)", left, left > 1 ? "entries" : "entry", first);
    return 0;
}

/* The history of DIR itself, not that of a tree around it. Whether it can be removed is checked before any change. */
static int find_history(bool mounted)
{
    struct wb_removal removal;
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
    /* The daemon of a mount has the lock. */
    if (!mounted && open_store(&removal) != 0)
        return WB_EXIT_FAILED;
    if (!mounted)
        close_store(&removal);
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
    if (access(unit.directory, F_OK) < 0)
        printf("%s is not enabled any more; there is no such directory\n", shown);
    else
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
    g_autofree char *word = NULL;

    if (!listed || !wb_listed_is_wayback(listed) || strcmp(listed->source, listed->point) == 0)
        return 0;
    word = wb_text_shell(listed->point);
    return wb_cli_fail(unit.directory, "it is in the mount %s of %s, which is not in place; to end that mount: wayback "
                       "unmount %s", listed->point, listed->source, word);
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
        r = wb_unit_check_own(&unit, way);
    if (r == 0 && way == WB_WAY_NONE)
        r = wb_unit_check_owner(&unit);
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
    int r = wb_cli_begin(&cli, options, &argc, &argv), error, end;

    if (r >= 0)
        return r;
    settings.store_fd = -1;
    directory = wb_path_real(argv[1]);
    error = directory ? 0 : errno;
    /* A dead mount, or a directory that was removed while it was enabled. */
    if (error == ENOTCONN || error == ENOENT)
        directory = wb_path_absolute(argv[1]);
    if (!directory)
        return wb_cli_fail(argv[1], "%s", error == ELOOP || error == EXDEV ? wb_path_error_text(error)
                                                                          : wb_errno_text(error));
    wb_unit_init(&unit, root, directory, NULL);
    if (error == ENOENT && wb_unit_find(&unit) == WB_WAY_NONE)
        return wb_cli_fail(argv[1], "%s; name a directory, or one that is enabled", wb_errno_text(error));
    wb_cli_stopped("run the same command again to complete it");
    if (json)
        wb_steps_begin(unit.directory, dry_run);
    r = carry_out();
    if (json)
        wb_steps_end("history", has_history && (!forget || dry_run));
    wb_settings_clear(&settings);
    wb_unit_clear(&unit);
    end = wb_cli_end();
    return MAX(r, end);
}

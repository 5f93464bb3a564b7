/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vundo.h"
#include "client/path.h"
#include "common/cli.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* vundo: takes restores by vrevert back, one after the other, and puts them in force again. */

static gboolean redo, show_list, force, dry_run, json, verbose, no_sync, remove_files;
static char *id_text;

static const GOptionEntry options[] = {
    {"op", 0, 0, G_OPTION_ARG_STRING, &id_text, "Undo the restore, undo or redo with this ID", "ID"},
    {"redo", 0, 0, G_OPTION_ARG_NONE, &redo, "Take the newest undo back", NULL},
    {"list", 0, 0, G_OPTION_ARG_NONE, &show_list, "List the restores below PATH, and change nothing", NULL},
    {"force", 0, 0, G_OPTION_ARG_NONE, &force, "Overwrite later changes of the same files, too", NULL},
    {"remove", 0, 0, G_OPTION_ARG_NONE, &remove_files, "Remove files without a question on the terminal", NULL},
    {"no-sync", 0, 0, G_OPTION_ARG_NONE, &no_sync, "Do not wait until the changes are on stable storage", NULL},
    WB_CLI_DRY_RUN(&dry_run),
    WB_CLI_JSON(&json),
    WB_CLI_VERBOSE(&verbose, "Print each action; with --list, each command"),
    WB_CLI_END,
};

static const struct wb_cli cli = {
    .name = "vundo",
    .arguments = "[PATH]",
    .summary = "Undoes the newest restore (vrevert) in PATH or below it that is in effect; run again, the one\n"
               "before. --redo takes the newest undo back. Only files that the restore changed are changed.\n"
               "If they changed again since then, nothing is done without --force. Without PATH: the\n"
               "current directory.",
    .examples = "  vundo src                 undo the newest restore below src\n"
                "  vundo --redo src          take that back\n"
                "  vundo --list src          list restores: +added -removed ~changed names\n"
                "  vundo --op 1795272263 -n  show what undoing that one would change\n",
    .paths_max = 1,
    .timeless = true,
};

char *vundo_shown(const struct vundo *vundo, const char *path)
{
    const struct wb_place *place = vundo->place;
    const char *rest, *given = strcmp(place->given, ".") == 0 ? "" : place->given;
    g_autofree char *shown = NULL;

    if (*path == '/' || !wb_path_below(path, place->path, &rest))
        return wb_path_join(place->mount->private ? place->mount->hello.source : place->mount->point,
                            *path == '/' ? path + 1 : path);
    shown = wb_path_join(given, rest);
    return *shown ? g_steal_pointer(&shown) : g_strdup(place->given);
}

/*
 * The history records the command line of a process, and it has to say which restore is undone: executes this program
 * again with --op=ID as its first argument, unless it has that. WB_EXIT_FAILED after an error line, or 0.
 */
static int name_restore(const struct restore *restore, char **arguments)
{
    char text[WB_WHEN_TEXT_MAX];
    g_autofree char *op = g_strconcat("--op=", restore_id(restore, text), NULL);
    g_autoptr(GPtrArray) again = g_ptr_array_new();

    if (arguments[0] && arguments[1] && strcmp(arguments[1], op) == 0)
        return WB_EXIT_OK;
    g_ptr_array_add(again, (char *)wb_cli_name());
    g_ptr_array_add(again, op);
    for (char **argument = arguments[0] ? arguments + 1 : arguments; *argument; argument++) {
        /* The former --op and its value. */
        if (strcmp(*argument, "--") == 0) {
            for (; *argument; argument++)
                g_ptr_array_add(again, *argument);
            break;
        }
        if (strcmp(*argument, "--op") == 0 && argument[1])
            argument++;
        else if (!g_str_has_prefix(*argument, "--op="))
            g_ptr_array_add(again, *argument);
    }
    g_ptr_array_add(again, NULL);
    fflush(stdout);
    wb_private_unmount_all();
    execv("/proc/self/exe", (char **)again->pdata);
    return wb_cli_fail(NULL, "/proc/self/exe: %s", wb_errno_text(-errno));
}

static int check_options(void)
{
    if (show_list && (id_text || force || dry_run))
        return wb_cli_usage("--list excludes --op, --force and --dry-run");
    if (id_text && (!*id_text || strspn(id_text, "0123456789.") != strlen(id_text)))
        return wb_cli_usage("--op: '%s' is not an ID; --list shows the IDs", id_text);
    return -1;
}

static int run(struct vundo *vundo, char **arguments)
{
    struct restore *restore;
    int error;

    vundo->restores = restores_read(vundo->place->mount, &error);
    if (!vundo->restores)
        return error == -EINTR ? WB_EXIT_OK : wb_cli_fail(vundo->place->given, "%s", wb_errno_text(error));
    if (show_list) {
        list(vundo);
        return WB_EXIT_OK;
    }
    restore = choose(vundo);
    if (!restore)
        return WB_EXIT_FAILED;
    if (!dry_run && name_restore(restore, arguments) != WB_EXIT_OK)
        return WB_EXIT_FAILED;
    invert(vundo, restore);
    return WB_EXIT_OK;
}

int main(int argc, char **argv)
{
    _cleanup_place_ struct wb_place *place = NULL;
    char **arguments = argv;
    struct vundo vundo = {0};
    int r = wb_cli_begin(&cli, options, &argc, &argv);

    if (r < 0)
        r = check_options();
    if (r >= 0)
        return r;
    wb_cli_stopped("nothing was changed");
    place = wb_place_find(argc > 1 ? argv[1] : ".", show_list || dry_run ? WB_MOUNT_READ : WB_MOUNT_WRITE);
    if (!place)
        return wb_cli_end();
    vundo = (struct vundo){.place = place, .id = id_text, .redo = redo, .force = force, .dry = dry_run, .json = json,
                           .verbose = verbose, .sync = !no_sync, .ask = !remove_files && !json && !dry_run};
    run(&vundo, arguments);
    if (vundo.restores)
        g_ptr_array_unref(vundo.restores);
    return wb_cli_end();
}

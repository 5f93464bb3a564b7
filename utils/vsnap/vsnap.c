/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vsnap.h"

#include "client/path.h"
#include "common/text.h"
#include <errno.h>
#include <string.h>

/*
 * vsnap: moments with names. A snapshot costs nothing but its name, because everything is kept anyway;
 * the daemon keeps the table, and this program asks for it.
 */

static const struct verb {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} verbs[] = {
    {"create", vsnap_create, "[NAME] [-m TEXT] [PATH]  create a snapshot of the present state"},
    {"list", vsnap_list, "[-v] [PATH]              list snapshots"},
    {"show", vsnap_show, "NAME... [PATH]           show snapshots in detail"},
    {"diff", vsnap_diff, "A [B] [PATH]             list added, removed, changed and renamed files"},
    {"view", vsnap_view, "NAME DIR [PATH]          mount a snapshot at DIR, read-only"},
    {"rename", vsnap_rename, "OLD NEW [PATH]           rename a snapshot"},
    {"delete", vsnap_delete, "NAME... [PATH]           delete snapshots, but no history"},
};

static const struct wb_cli cli = {
    .name = "vsnap",
    .arguments = "VERB ...",
    .summary = "", /* filled in main */
    .examples = "  vsnap create before-upgrade -m 'kernel 6.18'   create a snapshot\n"
                "  vsnap list                                     list snapshots\n"
                "  vsnap view before-upgrade /mnt                 mount it\n"
                "  cat etc/fstab@before-upgrade                   read a file at that time\n"
                "  vrevert --time before-upgrade etc              revert to that state\n",
};

bool vsnap_is_path(const char *word)
{
    return strchr(word, '/') || strcmp(word, ".") == 0 || strcmp(word, "..") == 0;
}

const char *vsnap_directory(const char *directory, int *argc, char **argv)
{
    return !directory && *argc > 2 && vsnap_is_path(argv[*argc - 1]) ? argv[--*argc] : directory;
}

struct wb_place *vsnap_place(const char *path, enum wb_mount_need need)
{
    struct wb_place *place = wb_place_find(path ? path : ".", need);

    if (place && place->mount->hello.history == 0) {
        wb_cli_fail(path, "the mount has no history (history=none, or the tree was never mounted for writing); mount "
                          "it for writing, without that option");
        return wb_place_free(place);
    }
    if (place && need == WB_MOUNT_WRITE && place->mount->hello.read_only) {
        wb_cli_fail(path, "the mount is read-only; mount the tree for writing to create or change snapshots");
        return wb_place_free(place);
    }
    return place;
}

/* "no snapshot ...", and what there is instead. */
static int fail_absent(const struct wb_place *place, const char *name)
{
    g_autoptr(GPtrArray) all = NULL;
    g_autofree char *similar = NULL;

    if (wb_request_snapshot_list(place->mount->root_fd, "", NULL, &all) == 0)
        similar = wb_snapshot_similar(all, name);
    if (similar)
        return wb_cli_fail(name, "no such snapshot; did you mean %s?", similar);
    return wb_cli_fail(name, "no such snapshot; %s", all && all->len > 0 ? "'vsnap list' lists the existing ones"
                                                                         : "there are none here");
}

int vsnap_fail(const struct wb_place *place, const char *name, int error)
{
    switch (-error) {
    case ENOENT:
        return fail_absent(place, name);
    case EEXIST:
        return wb_cli_fail(name, "a snapshot of that name exists; use another name, or rename or delete that one");
    case ENOTUNIQ:
        return wb_cli_fail(name, "several users have a snapshot of that name; run this as its owner, e.g. with "
                                 "'setpriv --reuid=UID --clear-groups'");
    case EPERM:
        return wb_cli_fail(name, "not permitted: only the owner of its directory may change it, or, if root or the "
                                 "user who mounted created it, only these");
    case EROFS:
        return wb_cli_fail(name, "cannot be changed through a read-only mount");
    case ENOSPC:
        return wb_cli_fail(name, "no space for it; delete snapshots that are not needed, or free space on the file "
                                 "system of the store");
    case EDQUOT:
        return wb_cli_fail(name, "you have the maximum number of snapshots of one user; delete some");
    case EINVAL:
        return wb_cli_fail(name, "the daemon does not support snapshots, or not this name; is it older than this "
                                 "program?");
    default:
        return wb_cli_fail(name, "%s", wb_errno_text(error));
    }
}

char *vsnap_shown(const struct wb_mount *mount, const char *path)
{
    const char *top = mount->private ? mount->hello.source : mount->point;
    g_autofree char *end = g_strconcat("/", mount->prefix, NULL);
    g_autofree char *root = g_strdup(top);

    /* What is open may be a directory below the root of the mount. */
    if (!mount->private && *mount->prefix) {
        if (g_str_has_suffix(root, end))
            root[strlen(root) - strlen(end)] = '\0';
        else
            return g_strdup(*path ? path : "/");
    }
    if (!*path)
        return g_strdup(*root ? root : "/");
    return g_strconcat(strcmp(root, "/") == 0 ? "" : root, "/", path, NULL);
}

static char *describe(void)
{
    GString *text = g_string_new("Snapshots are named times; NAME is a TIME everywhere: FILE@NAME, --time NAME.\n"
                                 "VERB is one of:\n");

    for (unsigned i = 0; i < G_N_ELEMENTS(verbs); i++)
        g_string_append_printf(text, "  %-7s %s\n", verbs[i].name, verbs[i].help);
    g_string_append(text, "Each VERB has a --help of its own.");
    return g_string_free(text, FALSE);
}

int main(int argc, char **argv)
{
    g_autofree char *summary = describe();
    static const GOptionEntry options[] = {WB_CLI_END};
    struct wb_cli all = cli;
    g_autofree char *shown = NULL;
    int r;

    for (unsigned i = 0; argc > 1 && i < G_N_ELEMENTS(verbs); i++) {
        if (strcmp(argv[1], verbs[i].name) != 0)
            continue;
        argv[1] = argv[0];
        return verbs[i].run(argc - 1, argv + 1);
    }
    all.summary = summary;
    r = wb_cli_begin(&all, options, &argc, &argv);
    if (r >= 0)
        return r;
    if (argc < 2)
        return wb_cli_usage("VERB is missing: use create, list, show, diff, view, rename or delete");
    shown = wb_text_printable(argv[1]);
    return wb_cli_usage("'%s' is not a verb: use create, list, show, diff, view, rename or delete", shown);
}

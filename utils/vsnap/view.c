/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vsnap.h"

#include "common/cli.h"
#include "client/control.h"
#include "client/fd.h"
#include "common/json.h"
#include "common/mount.h"
#include "client/path.h"
#include "common/text.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "wayback/at_name.h"

/*
 * vsnap view: a moment mounted at a directory. `wayback -o at=` does it, and knows best what is
 * wrong with the moment or the tree; here it is made sure that the directory is fit to be mounted on,
 * so that nothing is covered by mistake.
 */

static gboolean json, allow_other;
static char *store;

static const GOptionEntry options[] = {
    {"allow-other", 0, 0, G_OPTION_ARG_NONE, &allow_other,
     "Give other users access to files that they may read now and could read then", NULL},
    {"store", 0, 0, G_OPTION_ARG_FILENAME, &store, "The store is DIR, not PATH/.wayback", "DIR"},
    WB_CLI_JSON(&json),
    WB_CLI_END,
};

static const struct wb_cli cli = {
    .name = "vsnap",
    .verb = "view",
    .arguments = "NAME DIR [PATH]",
    .summary = "Mounts a past state at the empty directory DIR, read-only: NAME is a snapshot or any TIME, PATH a\n"
               "directory of its tree (by default the current one). Unmount it as usual: fusermount3 -u DIR, or\n"
               "as root umount DIR.",
    .examples = "  vsnap view before-upgrade /mnt          the tree of the current directory, at a snapshot\n"
                "  vsnap view yesterday ~/then ~/work      ~/work at 0:00 yesterday\n"
                "  vsnap view --allow-other 14:03 /mnt/srv /srv  as root, for all users\n",
    .paths_min = 2,
    .paths_max = 3,
};

/* ---- the directory --------------------------------------------------------------------------- */

static int check_dir(const char *dir)
{
    _cleanup_fd_ int fd = -1;
    GPtrArray *names;
    struct stat st;
    guint count;

    if (stat(dir, &st) < 0)
        return errno == ENOENT ? wb_cli_fail(dir, "no such directory; create it first: mkdir %s", dir)
                               : wb_cli_fail(dir, "%s", wb_errno_text(errno));
    if (!S_ISDIR(st.st_mode))
        return wb_cli_fail(dir, "not a directory; name an empty directory");
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    names = fd < 0 ? NULL : wb_fd_names(fd);
    if (!names)
        return wb_cli_fail(dir, "%s", wb_errno_text(errno));
    count = names->len;
    g_ptr_array_unref(names);
    if (count > 0)
        return wb_cli_fail(dir, "not empty (the mount would cover its entries); name an empty directory");
    return WB_EXIT_OK;
}

/* ---- mounting -------------------------------------------------------------------------------- */

/* One word of an option list: a comma would end it. */
static void add_option(GString *list, const char *key, const char *value)
{
    if (list->len > 0)
        g_string_append_c(list, ',');
    g_string_append(list, key);
    for (; value && *value; value++) {
        if (*value == ',' || *value == '\\')
            g_string_append_c(list, '\\');
        g_string_append_c(list, *value);
    }
}

/* The view writes NAME@TIME as the mount does that `path` lies in. */
static void add_mark(GString *list, const char *path)
{
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    g_autofree struct wb_control_hello *hello = g_new0(struct wb_control_hello, 1);

    if (fd >= 0 && wb_request_hello(fd, hello) == 0 && hello->at_sign && hello->at_sign != WB_AT_SIGN)
        add_option(list, "at-sign=", (char[]){(char)hello->at_sign, '\0'});
}

static int mount_at(const char *name, const char *dir, const char *path)
{
    g_autofree char *daemon = wb_private_daemon();
    g_autoptr(GString) list = g_string_new(NULL);
    g_autofree char *said = NULL;
    const char *words;
    g_autoptr(GError) error = NULL;
    int status;

    if (!daemon)
        return wb_cli_fail(dir, "the program 'wayback' was not found; add it to PATH or set WAYBACK_DAEMON");
    add_option(list, "at=", name);
    if (store)
        add_option(list, "store=", store);
    if (allow_other)
        add_option(list, "allow_other", NULL);
    add_mark(list, path);
    {
        const char *arguments[] = {daemon, "-o", list->str, "--", path, dir, NULL};

        if (!g_spawn_sync(NULL, (char **)arguments, NULL, G_SPAWN_DEFAULT, NULL, NULL, NULL, &said, &status, &error))
            return wb_cli_fail(dir, "%s cannot be run: %s", daemon, error->message);
    }
    if (status == 0)
        return WB_EXIT_OK;
    g_strchomp(said);
    words = g_str_has_prefix(said, "wayback: ") ? said + strlen("wayback: ") : said;
    words += g_str_has_prefix(words, "at=") ? strlen("at=") : 0;
    return wb_cli_fail(NULL, "%s", *words ? words : "wayback failed without a message");
}

/* ---- what was done --------------------------------------------------------------------------- */

static int report_mount(const char *dir)
{
    _cleanup_fd_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    g_autofree struct wb_control_hello *hello = g_new0(struct wb_control_hello, 1);
    g_autofree char *shown = wb_text_printable(dir);
    g_autofree char *quoted = wb_text_shell(dir);
    g_autofree char *source = NULL;
    char text[WB_WHEN_TEXT_MAX];
    int r = fd < 0 ? -errno : wb_request_hello(fd, hello);

    if (r < 0)
        return wb_cli_fail(dir, "mounted, but the daemon does not answer: %s", wb_errno_text(r));
    if (json) {
        g_autoptr(JsonBuilder) builder = json_builder_new();

        json_builder_begin_object(builder);
        wb_json_string(builder, "directory", dir);
        wb_json_string(builder, "source", hello->source);
        wb_json_when(builder, hello->moment);
        json_builder_end_object(builder);
        wb_json_document(builder);
        return WB_EXIT_OK;
    }
    source = wb_text_printable(hello->source);
    printf("%s: %s as of %s\n", shown, source, wb_when_print(hello->moment, 1, text));
    printf("unmount: %s %s\n", geteuid() == 0 ? "umount" : "fusermount3 -u", quoted);
    return WB_EXIT_OK;
}

int vsnap_view(int argc, char **argv)
{
    const char *name, *dir, *path;
    int r = wb_cli_begin(&cli, options, &argc, &argv);

    if (r >= 0)
        return r;
    name = argv[1];
    dir = argv[2];
    path = argc > 3 ? argv[3] : ".";
    r = check_dir(dir);
    if (r == WB_EXIT_OK)
        r = mount_at(name, dir, path);
    if (r == WB_EXIT_OK)
        report_mount(dir);
    return wb_cli_end();
}

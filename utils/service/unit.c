/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "service/unit.h"

#include "client/fd.h"
#include "common/cli.h"
#include "common/mount.h"
#include "service/fstab.h"
#include "service/program.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* As systemd-escape --path: "/srv/my tree" is "srv-my\x20tree". g_free. */
static char *escape_path(const char *path)
{
    GString *text = g_string_new(NULL);

    path += strspn(path, "/");
    for (const char *c = path; *c; c++) {
        if (*c == '/' && (c[1] == '/' || !c[1]))
            continue;
        if (*c == '/')
            g_string_append_c(text, '-');
        else if (g_ascii_isalnum(*c) || *c == ':' || *c == '_' || (*c == '.' && c != path))
            g_string_append_c(text, *c);
        else
            g_string_append_printf(text, "\\x%02x", (unsigned char)*c);
    }
    return g_string_free(text, FALSE);
}

void wb_unit_init(struct wb_unit *unit, const char *root, const char *directory, const char *options)
{
    g_autofree char *instance = escape_path(directory);
    g_autofree char *daemon = wb_private_daemon();

    *unit = (struct wb_unit){
        .root = root ? root : "",
        .directory = g_strdup(directory),
        .name = g_strdup_printf("wayback@%s.service", instance),
        .options = g_strdup(options ? options : ""),
        .daemon = daemon ? g_canonicalize_filename(daemon, NULL) : NULL,
    };
}

void wb_unit_clear(struct wb_unit *unit)
{
    g_free(unit->directory);
    g_free(unit->name);
    g_free(unit->options);
    g_free(unit->daemon);
}

/* ---- where things are ------------------------------------------------------------------------------------ */

static char *in_root(const struct wb_unit *unit, const char *path)
{
    return g_strconcat(unit->root, path, NULL);
}

bool wb_unit_has_systemd(const struct wb_unit *unit)
{
    g_autofree char *path = in_root(unit, "/run/systemd/system");

    return g_file_test(path, G_FILE_TEST_IS_DIR);
}

/* The unit of the user's systemd; its variable is the user's own, and this program has no other rights. */
static char *user_file(const struct wb_unit *unit)
{
    g_autofree char *path = g_build_filename(g_get_user_config_dir(), "systemd", "user", unit->name, NULL);

    return in_root(unit, path);
}

/* The file with the options of an instance of wayback@.service. */
static char *options_file(const struct wb_unit *unit)
{
    g_autofree char *instance = g_strndup(unit->name + strlen("wayback@"),
                                          strlen(unit->name) - strlen("wayback@.service"));

    return g_strdup_printf("%s/etc/wayback/%s.env", unit->root, instance);
}

static char *fstab_file(const struct wb_unit *unit)
{
    return in_root(unit, "/etc/fstab");
}

static char *file_of(const struct wb_unit *unit, enum wb_way way)
{
    return way == WB_WAY_USER ? user_file(unit) : way == WB_WAY_SYSTEM ? options_file(unit) : fstab_file(unit);
}

char *wb_unit_describe(const struct wb_unit *unit, enum wb_way way)
{
    g_autofree char *fstab = fstab_file(unit);

    if (way == WB_WAY_FSTAB)
        return g_strdup_printf("a line of %s", fstab);
    return g_strdup_printf("the %s %s", way == WB_WAY_USER ? "user unit" : "system unit", unit->name);
}

/* The link that `systemctl enable` makes. */
static char *wanted_file(const struct wb_unit *unit, enum wb_way way)
{
    g_autofree char *user = user_file(unit), *directory = g_path_get_dirname(user);

    if (way == WB_WAY_USER)
        return g_build_filename(directory, "default.target.wants", unit->name, NULL);
    return g_strdup_printf("%s/etc/systemd/system/multi-user.target.wants/%s", unit->root, unit->name);
}

static bool exists(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

enum wb_way wb_unit_find(const struct wb_unit *unit)
{
    g_autofree char *user = user_file(unit), *fstab = fstab_file(unit), *wanted = wanted_file(unit, WB_WAY_SYSTEM);

    if (exists(user))
        return WB_WAY_USER;
    if (exists(wanted))
        return WB_WAY_SYSTEM;
    return wb_fstab_has(fstab, unit->directory) ? WB_WAY_FSTAB : WB_WAY_NONE;
}

struct wb_mount *wb_unit_mount(const char *directory)
{
    g_autoptr(GPtrArray) list = wb_listed_mounts();
    const struct wb_listed *listed = wb_listed_of(list, directory);
    struct wb_mount *mount;
    int error;

    if (!listed || !wb_listed_is_wayback(listed) || strcmp(listed->point, directory) != 0)
        return NULL;
    mount = wb_mount_open(listed, directory, &error);
    if (mount && (strcmp(mount->hello.source, directory) != 0 || mount->hello.moment != 0))
        mount = wb_mount_free(mount);
    return mount;
}

bool wb_unit_is_mounted(const char *directory)
{
    g_autoptr(GPtrArray) list = wb_listed_mounts();
    const struct wb_listed *listed = wb_listed_of(list, directory);

    return listed && wb_listed_is_wayback(listed) && strcmp(listed->point, directory) == 0;
}

/* ---- texts ----------------------------------------------------------------------------------------------- */

/* A word in a unit or a file of variables, which a pair of " encloses. */
static char *quote(const char *word, bool in_unit)
{
    GString *text = g_string_new("\"");

    for (; *word; word++) {
        if (*word == '"' || *word == '\\')
            g_string_append_c(text, '\\');
        else if (*word == '%' && in_unit)
            g_string_append_c(text, '%');
        else if (*word == '$')
            g_string_append_c(text, in_unit ? '$' : '\\');
        else if (*word == '`' && !in_unit)
            g_string_append_c(text, '\\');
        g_string_append_c(text, *word);
    }
    g_string_append_c(text, '"');
    return g_string_free(text, FALSE);
}

#define OPTIONS_NAME "WAYBACK_OPTIONS="

static char *unit_text(const struct wb_unit *unit)
{
    g_autofree char *program = quote(unit->daemon, true), *options = quote(unit->options, true);
    g_autofree char *with = *unit->options ? g_strdup_printf(" -o %s", options) : g_strdup("");

    return g_strdup_printf("# Written by `wayback enable`; `wayback disable` removes it.\n"
                           "[Unit]\n"
                           "Description=History for %%f\n"
                           "Documentation=man:wayback(1) man:venable(1)\n"
                           "StartLimitIntervalSec=60\n"
                           "StartLimitBurst=6\n"
                           "\n"
                           "[Service]\n"
                           "# Started once the mount answers; a daemon that died is started again.\n"
                           "Type=forking\n"
                           "ExecStart=%s%s %%f\n"
                           "Restart=on-failure\n"
                           "RestartSec=200ms\n"
                           "TimeoutStopSec=60\n"
                           "\n"
                           "[Install]\n"
                           "WantedBy=default.target\n",
                           program, with);
}

static char *text_of(const struct wb_unit *unit, enum wb_way way, const char *former)
{
    g_autofree char *options = NULL;

    if (way == WB_WAY_USER)
        return unit_text(unit);
    if (way == WB_WAY_FSTAB)
        return wb_fstab_with(former, unit->directory, unit->options);
    options = quote(unit->options, false);
    return g_strdup_printf("# Written by `wayback enable`; `wayback disable` removes it.\n"
                           OPTIONS_NAME "%s\n", options);
}

/* The options in the text that text_of wrote: undoes its quotes. NULL: they are not there. */
static char *parse_options(const char *text, const char *mark, bool in_unit)
{
    const char *at = strstr(text, mark);
    GString *options;

    if (!at || at[strlen(mark)] != '"')
        return NULL;
    options = g_string_new(NULL);
    for (at += strlen(mark) + 1; *at && *at != '"' && *at != '\n'; at++) {
        bool escaped = *at == '\\' || (in_unit && (*at == '%' || *at == '$'));

        if (escaped && at[1])
            at++;
        g_string_append_c(options, *at);
    }
    return g_string_free(options, FALSE);
}

char *wb_unit_options(const struct wb_unit *unit, enum wb_way way)
{
    g_autofree char *path = file_of(unit, way), *text = NULL;
    char *options;

    if (way == WB_WAY_FSTAB)
        return wb_fstab_options(path, unit->directory);
    if (!g_file_get_contents(path, &text, NULL, NULL))
        return way == WB_WAY_SYSTEM ? g_strdup("allow_other") : NULL;
    options = parse_options(text, way == WB_WAY_USER ? " -o " : OPTIONS_NAME, way == WB_WAY_USER);
    return options || way != WB_WAY_USER ? options : g_strdup("");
}

/* ---- writing --------------------------------------------------------------------------------------------- */

static bool has_template(const struct wb_unit *unit)
{
    static const char *const places[] = {"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system",
                                         "/usr/lib/systemd/system", "/lib/systemd/system"};

    for (unsigned i = 0; i < G_N_ELEMENTS(places); i++) {
        g_autofree char *path = g_strconcat(unit->root, places[i], "/wayback@.service", NULL);

        if (exists(path))
            return true;
    }
    return false;
}

static bool has_helper(const struct wb_unit *unit)
{
    g_autofree char *one = in_root(unit, "/sbin/mount.wayback"), *other = in_root(unit, "/usr/sbin/mount.wayback");

    return access(one, X_OK) == 0 || access(other, X_OK) == 0;
}

int wb_unit_check(const struct wb_unit *unit, enum wb_way way)
{
    if (!unit->daemon)
        return wb_cli_fail(unit->directory, "the program wayback was not found; install it beside this one");
    if (way != WB_WAY_USER && geteuid() != 0)
        return wb_cli_fail(unit->directory, "a system unit and a line of fstab are written by root; run this as root, "
                           "or use --user");
    if (way == WB_WAY_SYSTEM && !has_template(unit))
        return wb_cli_fail(unit->directory, "wayback@.service is not installed for systemd; run `meson install`, or "
                           "use --fstab");
    if (way == WB_WAY_FSTAB && !has_helper(unit))
        return wb_cli_fail(unit->directory, "mount.wayback is not installed in /sbin, and mount(8) needs it for a line "
                           "of fstab; run `meson install`");
    return 0;
}

/* Beside the file and renamed, with the mode and the owner of a former file, also of one behind a link. 0 or -errno. */
static int write_file(const char *given, const char *text)
{
    g_autofree char *real = realpath(given, NULL);
    const char *path = real ? real : given;
    g_autofree char *directory = g_path_get_dirname(path), *new = g_strdup_printf("%s.wayback-new", path);
    struct stat st;
    mode_t mode = 0644;
    int fd, r = 0;

    if (g_mkdir_with_parents(directory, 0755) < 0)
        return -errno;
    unlink(new);
    fd = open(new, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    if (stat(path, &st) == 0) {
        mode = st.st_mode & 07777;
        if (fchown(fd, st.st_uid, st.st_gid) < 0)
            r = -errno;
    }
    if (r == 0)
        r = wb_fd_write(fd, text, strlen(text), 0);
    if (r == 0 && (fchmod(fd, mode) < 0 || fsync(fd) < 0))
        r = -errno;
    close(fd);
    if (r == 0 && rename(new, path) < 0)
        r = -errno;
    if (r < 0)
        unlink(new);
    return r;
}

enum wb_unit_change wb_unit_write(const struct wb_unit *unit, enum wb_way way, bool dry_run, char **ret_path)
{
    g_autofree char *path = file_of(unit, way), *former = NULL, *text = NULL;
    bool was_there = way == WB_WAY_FSTAB ? wb_fstab_has(path, unit->directory) : exists(path);
    int r;

    if (!g_file_get_contents(path, &former, NULL, NULL) && exists(path)) {
        wb_cli_fail(path, "cannot be read; nothing was changed");
        return WB_UNIT_FAILED;
    }
    text = text_of(unit, way, former ? former : "");
    *ret_path = g_strdup(path);
    if (former && strcmp(former, text) == 0)
        return WB_UNIT_SAME;
    r = dry_run ? 0 : write_file(path, text);
    if (r < 0) {
        wb_cli_fail(path, "cannot be written (%s)", wb_errno_text(-r));
        return WB_UNIT_FAILED;
    }
    return was_there ? WB_UNIT_CHANGED : WB_UNIT_NEW;
}

/* ---- systemd --------------------------------------------------------------------------------------------- */

/* The last reason that the daemon of the unit has given, from the journal; g_free. NULL: there is none. */
static char *reason_of(const struct wb_unit *unit, enum wb_way way)
{
    const char *arguments[] = {"journalctl", "--quiet", "--no-pager", "--output=cat", "--lines=20",
                               way == WB_WAY_USER ? "--user-unit" : "--unit", unit->name, NULL};
    g_autofree char *output = NULL;
    g_auto(GStrv) lines = NULL;
    char *reason = NULL;

    if (wb_program_run(arguments, -1, &output) != 0)
        return NULL;
    lines = g_strsplit(output, "\n", -1);
    for (char **line = lines; *line; line++) {
        if (!g_str_has_prefix(*line, "wayback: "))
            continue;
        g_free(reason);
        reason = g_strdup(*line + strlen("wayback: "));
    }
    return reason;
}

/* 0, or WB_EXIT_FAILED after an error line with the reason of the daemon, or the last line of the output. */
static int systemctl(const struct wb_unit *unit, enum wb_way way, const char *verb, bool with_unit)
{
    const char *arguments[6];
    g_autofree char *output = NULL, *last = NULL, *reason = NULL;
    const char *user = way == WB_WAY_USER ? " --user" : "";
    int n = 0, status;

    arguments[n++] = "systemctl";
    if (way == WB_WAY_USER)
        arguments[n++] = "--user";
    arguments[n++] = verb;
    if (with_unit)
        arguments[n++] = unit->name;
    arguments[n] = NULL;
    status = wb_program_run(arguments, -1, &output);
    if (status == 0)
        return 0;
    reason = strcmp(verb, "restart") == 0 ? reason_of(unit, way) : NULL;
    if (reason)
        return wb_cli_fail(NULL, "%s", reason);
    last = wb_program_last_line(output);
    return wb_cli_fail(unit->directory, "systemctl%s %s failed: %s; see: systemctl%s status '%s'", user, verb,
                       *last ? last : "no output", user, unit->name);
}

/* If it did not start, systemd may be about to try again. Nothing is mounted any more, so that nothing is reported. */
static void stop(const struct wb_unit *unit, enum wb_way way)
{
    const char *user[] = {"systemctl", "--user", "stop", unit->name, NULL};
    const char *system[] = {"systemctl", "stop", unit->name, NULL};
    g_autofree char *output = NULL;

    wb_program_run(way == WB_WAY_USER ? user : system, -1, &output);
}

int wb_unit_enable(const struct wb_unit *unit, enum wb_way way)
{
    int r;

    /* systemd makes units of fstab, too. */
    if (way == WB_WAY_FSTAB)
        return wb_unit_has_systemd(unit) ? systemctl(unit, way, "daemon-reload", false) : 0;
    r = systemctl(unit, way, "daemon-reload", false);
    return r != 0 ? r : systemctl(unit, way, "enable", true);
}

int wb_unit_start(const struct wb_unit *unit, enum wb_way way)
{
    const char *arguments[5];
    g_autofree char *output = NULL, *last = NULL;
    int n = 0;

    if (way != WB_WAY_FSTAB)
        return systemctl(unit, way, "restart", true);
    arguments[n++] = unit->daemon;
    if (*unit->options) {
        arguments[n++] = "-o";
        arguments[n++] = unit->options;
    }
    arguments[n++] = unit->directory;
    arguments[n] = NULL;
    if (wb_program_run(arguments, -1, &output) == 0)
        return 0;
    last = wb_program_last_line(output);
    return wb_cli_fail(NULL, "%s", last);
}

int wb_unit_unmount(const struct wb_unit *unit, char **ret_said)
{
    const char *as_root[] = {"umount", "--", unit->directory, NULL};
    const char *as_user[] = {"fusermount3", "-u", "--", unit->directory, NULL};
    g_autofree char *output = NULL;
    int status = wb_program_run(geteuid() == 0 ? as_root : as_user, -1, &output);

    g_free(*ret_said);
    *ret_said = wb_program_last_line(output);
    return status;
}

int wb_unit_remove(const struct wb_unit *unit, enum wb_way way)
{
    g_autofree char *path = file_of(unit, way), *former = NULL, *text = NULL, *wanted = wanted_file(unit, way);
    int r = 0, status = 0;

    if (way == WB_WAY_USER || way == WB_WAY_SYSTEM) {
        stop(unit, way);
        status = systemctl(unit, way, "disable", true);
        /* In case systemd was not reached. */
        unlink(wanted);
    }
    if (way == WB_WAY_FSTAB) {
        if (g_file_get_contents(path, &former, NULL, NULL)) {
            text = wb_fstab_without(former, unit->directory);
            r = strcmp(former, text) != 0 ? write_file(path, text) : 0;
        }
    } else if (unlink(path) < 0 && errno != ENOENT) {
        r = -errno;
    }
    if (r < 0)
        return wb_cli_fail(path, "cannot be changed (%s); remove the entry of %s by hand", wb_errno_text(-r),
                           unit->directory);
    if (status == 0 && (way != WB_WAY_FSTAB || wb_unit_has_systemd(unit)))
        status = systemctl(unit, way, "daemon-reload", false);
    return status;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "service/unit.h"

#include "client/fd.h"
#include "common/cli.h"
#include "common/mount.h"
#include "common/text.h"
#include "service/fstab.h"
#include "service/program.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
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

#define MARK "# Written by `wayback enable`; `wayback disable` removes it.\n"
/* Variables of wayback@.service, and its value of the first one. */
#define OPTIONS_NAME "WAYBACK_OPTIONS"
#define OPTIONS_INITIAL "allow_other"
#define SOURCE_NAME "WAYBACK_SOURCE"

static char *unit_text(const struct wb_unit *unit)
{
    g_autofree char *program = quote(unit->daemon, true), *options = quote(unit->options, true);
    g_autofree char *with = *unit->options ? g_strdup_printf(" -o %s", options) : g_strdup("");

    return g_strdup_printf(MARK
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

static char *text_of(const struct wb_unit *unit, enum wb_way way, const char *path, const char *former)
{
    g_autofree char *options = NULL;

    if (way == WB_WAY_USER)
        return unit_text(unit);
    if (way == WB_WAY_FSTAB)
        return wb_fstab_with(path, former, unit->directory, unit->options);
    options = quote(unit->options, false);
    return g_strdup_printf(MARK OPTIONS_NAME "=%s\n", options);
}

/* The options in the text of a unit that unit_text wrote: undoes its quotes. "": it has none. */
static char *options_of_unit(const char *text)
{
    static const char mark[] = " -o \"";
    const char *at = strstr(text, mark);
    GString *options = g_string_new(NULL);

    for (at = at ? at + strlen(mark) : ""; *at && *at != '"' && *at != '\n'; at++) {
        if ((*at == '\\' || *at == '%' || *at == '$') && at[1])
            at++;
        g_string_append_c(options, *at);
    }
    return g_string_free(options, FALSE);
}

/* The value of a variable in a file of variables, as systemd.exec(5) reads it: the last one. g_free; NULL: not set. */
static char *variable_of(const char *text, const char *name)
{
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    char *value = NULL;

    for (char **line = lines; *line; line++) {
        const char *at = g_strchug(*line);
        GString *found;
        char quote_sign;

        if (!g_str_has_prefix(at, name) || at[strlen(name)] != '=')
            continue;
        at = g_strchomp(*line) + strlen(name) + 1;
        quote_sign = *at == '"' || *at == '\'' ? *at++ : '\0';
        found = g_string_new(NULL);
        for (; *at && *at != quote_sign; at++) {
            if (*at == '\\' && quote_sign != '\'' && at[1])
                at++;
            g_string_append_c(found, *at);
        }
        g_free(value);
        value = g_string_free(found, FALSE);
    }
    return value;
}

char *wb_unit_options(const struct wb_unit *unit, enum wb_way way)
{
    g_autofree char *path = file_of(unit, way), *text = NULL;
    char *options;

    if (way == WB_WAY_FSTAB)
        return wb_fstab_options(path, unit->directory);
    if (!g_file_get_contents(path, &text, NULL, NULL))
        return way == WB_WAY_SYSTEM ? g_strdup(OPTIONS_INITIAL) : NULL;
    if (way == WB_WAY_USER)
        return options_of_unit(text);
    options = variable_of(text, OPTIONS_NAME);
    return options ? options : g_strdup(OPTIONS_INITIAL);
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

/* A file that is there, but that `wayback enable` did not write. g_free; NULL: there is none. */
static char *find_foreign(const struct wb_unit *unit, enum wb_way way)
{
    g_autofree char *path = file_of(unit, way), *text = NULL;

    if (way == WB_WAY_FSTAB || !g_file_get_contents(path, &text, NULL, NULL) || g_str_has_prefix(text, MARK))
        return NULL;
    return g_steal_pointer(&path);
}

int wb_unit_check_own(const struct wb_unit *unit, enum wb_way way)
{
    g_autofree char *foreign = way == WB_WAY_USER ? find_foreign(unit, way) : NULL;

    if (!foreign)
        return 0;
    return wb_cli_fail(foreign, "this unit was not written by `wayback enable`, so it is neither changed nor removed; "
                       "remove it, or use it with: systemctl --user enable --now '%s'", unit->name);
}

/* The user who mounted it, or the owner of the directory: not even root may look into the mount of another user. */
static uid_t find_owner(const struct wb_unit *unit)
{
    g_autoptr(GPtrArray) list = wb_listed_mounts();
    struct stat st;
    uid_t uid = 0;

    for (guint i = 0; i < list->len; i++) {
        const struct wb_listed *listed = list->pdata[i];

        if (strcmp(listed->point, unit->directory) == 0)
            wb_listed_user(listed, &uid);
    }
    return uid != 0 || stat(unit->directory, &st) < 0 ? uid : st.st_uid;
}

int wb_unit_check_owner(const struct wb_unit *unit)
{
    g_autofree char *path = NULL, *word = NULL;
    uid_t uid = geteuid() == 0 ? find_owner(unit) : 0;
    const struct passwd *owner = uid != 0 ? getpwuid(uid) : NULL;

    if (!owner)
        return 0;
    path = g_strdup_printf("%s%s/.config/systemd/user/%s", unit->root, owner->pw_dir, unit->name);
    if (!exists(path))
        return 0;
    word = wb_text_shell(unit->directory);
    return wb_cli_fail(unit->directory, "%s enabled it (%s), so that user has to disable it: wayback disable %s",
                       owner->pw_name, path, word);
}

/* Another source at the same place; names that are too long. */
static int check_names(const struct wb_unit *unit, enum wb_way way)
{
    g_autofree char *fstab = fstab_file(unit), *other = wb_fstab_other(fstab, unit->directory);
    g_autofree char *path = file_of(unit, way), *name = g_path_get_basename(path), *text = NULL, *source = NULL;

    if (other)
        return wb_cli_fail(unit->directory, "a line of %s mounts another tree there, %s; remove that line first", fstab,
                           other);
    if (way != WB_WAY_FSTAB && MAX(strlen(unit->name), strlen(name)) > NAME_MAX)
        return wb_cli_fail(unit->directory, "its path is too long for the name of a systemd unit (%zu bytes with its "
                           "special characters escaped, at most %d); %s", strlen(unit->name), NAME_MAX,
                           geteuid() == 0 ? "use --fstab" : "root can use --fstab");
    if (way == WB_WAY_SYSTEM && g_file_get_contents(path, &text, NULL, NULL))
        source = variable_of(text, SOURCE_NAME);
    if (source && strcmp(source, unit->directory) != 0)
        return wb_cli_fail(path, "it has " SOURCE_NAME "=%s, so the unit mounts another tree there; remove that file "
                           "first", source);
    return wb_unit_check_own(unit, way);
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
    return check_names(unit, way);
}

/* Some file systems refuse that; the file is complete nevertheless. */
static void sync_directory(const char *directory)
{
    _cleanup_fd_ int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd >= 0 && fsync(fd) < 0)
        errno = 0;
}

/* Beside the file and renamed, with the mode and the owner of a former file, also of one behind a link. 0 or -errno. */
static int write_file(const char *given, const char *text)
{
    g_autofree char *real = realpath(given, NULL);
    const char *path = real ? real : given;
    g_autofree char *directory = g_path_get_dirname(path), *new = g_build_filename(directory, ".wayback-new", NULL);
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
    else
        sync_directory(directory);
    return r;
}

/* Held from the reading of a file to its replacement: two commands at a time would lose a line of one. A descriptor. */
static int lock_file(const char *given)
{
    g_autofree char *real = realpath(given, NULL), *directory = g_path_get_dirname(real ? real : given);
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    while (fd >= 0 && flock(fd, LOCK_EX) < 0 && errno == EINTR)
        continue;
    return fd;
}

enum wb_unit_change wb_unit_write(const struct wb_unit *unit, enum wb_way way, bool dry_run, char **ret_path)
{
    g_autofree char *path = file_of(unit, way), *former = NULL, *text = NULL, *foreign = find_foreign(unit, way);
    g_autofree char *options = foreign ? wb_unit_options(unit, way) : NULL;
    _cleanup_fd_ int lock = dry_run ? -1 : lock_file(path);
    bool was_there = way == WB_WAY_FSTAB ? wb_fstab_has(path, unit->directory) : exists(path);
    int r;

    *ret_path = g_strdup(path);
    if (!g_file_get_contents(path, &former, NULL, NULL) && exists(path)) {
        wb_cli_fail(path, "cannot be read; nothing was changed");
        return WB_UNIT_FAILED;
    }
    if (options && strcmp(options, unit->options) == 0)
        return WB_UNIT_SAME;
    if (foreign) {
        wb_cli_fail(path, "it was not written by `wayback enable`, so it is not changed; set in it: " OPTIONS_NAME
                    "=%s", unit->options);
        return WB_UNIT_FAILED;
    }
    text = text_of(unit, way, path, former ? former : "");
    if (former && strcmp(former, text) == 0)
        return WB_UNIT_SAME;
    r = dry_run ? 0 : write_file(path, text);
    if (r < 0) {
        wb_cli_fail(path, "cannot be written (%s); nothing was changed", wb_errno_text(-r));
        return WB_UNIT_FAILED;
    }
    return was_there ? WB_UNIT_CHANGED : WB_UNIT_NEW;
}

char *wb_unit_text(const struct wb_unit *unit, enum wb_way way)
{
    g_autofree char *path = file_of(unit, way);
    char *text = NULL;

    if (way == WB_WAY_FSTAB)
        return wb_fstab_line(path, unit->directory);
    return g_file_get_contents(path, &text, NULL, NULL) ? text : NULL;
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

/* The text of the file, or the line of fstab; NULL: none. 0 or -errno. */
static int set_text(const struct wb_unit *unit, enum wb_way way, const char *path, const char *wanted)
{
    _cleanup_fd_ int lock = lock_file(path);
    g_autofree char *former = NULL, *text = NULL;

    if (way != WB_WAY_FSTAB && !wanted)
        return unlink(path) < 0 && errno != ENOENT ? -errno : 0;
    if (!g_file_get_contents(path, &former, NULL, NULL) && exists(path))
        return -EIO;
    if (!former && !wanted)
        return 0;
    text = way == WB_WAY_FSTAB ? wb_fstab_edit(former ? former : "", unit->directory, wanted) : g_strdup(wanted);
    return former && strcmp(former, text) == 0 ? 0 : write_file(path, text);
}

int wb_unit_put_back(const struct wb_unit *unit, enum wb_way way, const char *text)
{
    g_autofree char *path = file_of(unit, way);
    int r = set_text(unit, way, path, text);

    if (r < 0)
        return wb_cli_fail(path, "its former content cannot be put back (%s)", wb_errno_text(-r));
    return way != WB_WAY_FSTAB || wb_unit_has_systemd(unit) ? systemctl(unit, way, "daemon-reload", false) : 0;
}

int wb_unit_remove(const struct wb_unit *unit, enum wb_way way)
{
    g_autofree char *path = file_of(unit, way), *wanted = wanted_file(unit, way), *foreign = find_foreign(unit, way);
    int r, status = 0;

    if (way == WB_WAY_USER || way == WB_WAY_SYSTEM) {
        stop(unit, way);
        status = systemctl(unit, way, "disable", true);
        /* In case systemd was not reached. */
        unlink(wanted);
    }
    if (foreign)
        wb_cli_warn(foreign, "it was not written by `wayback enable`, so it remains");
    r = foreign ? 0 : set_text(unit, way, path, NULL);
    if (r < 0)
        return wb_cli_fail(path, "cannot be changed (%s); remove the entry of %s by hand", wb_errno_text(-r),
                           unit->directory);
    if (status == 0 && (way != WB_WAY_FSTAB || wb_unit_has_systemd(unit)))
        status = systemctl(unit, way, "daemon-reload", false);
    return status;
}

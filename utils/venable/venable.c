/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * venable: makes a directory recorded for good. A unit or a line of fstab mounts it over itself at each boot or login;
 * it is mounted now, its policy is written, and the mount is tested. A second call changes only what differs.
 */
#include "client/path.h"
#include "common/cli.h"
#include "common/mount.h"
#include "common/text.h"
#include "service/busy.h"
#include "service/probe.h"
#include "service/program.h"
#include "service/settings.h"
#include "service/steps.h"
#include "service/unit.h"
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *keep, *max_size, *mount_options, *root;
static gboolean for_user, for_system, by_fstab, dry_run, as_json;
static bool is_tested;

static const GOptionEntry options[] = {
    {"keep", 0, 0, G_OPTION_ARG_STRING, &keep, "Keep every version for AGE, as in 30d", "AGE"},
    {"max", 0, 0, G_OPTION_ARG_STRING, &max_size,
     "Delete older ones beyond SIZE, as in 20G; '20G hard': younger ones too if needed", "SIZE"},
    {"user", 0, 0, G_OPTION_ARG_NONE, &for_user,
     "Use your own systemd (the default)", NULL},
    {"system", 0, 0, G_OPTION_ARG_NONE, &for_system,
     "Use wayback@.service (root's default)", NULL},
    {"fstab", 0, 0, G_OPTION_ARG_NONE, &by_fstab,
     "Use fstab (root's default without systemd)", NULL},
    {"options", 'o', 0, G_OPTION_ARG_STRING, &mount_options, "Mount options, as of wayback -o", "OPTION,..."},
    {"root", 0, 0, G_OPTION_ARG_FILENAME, &root, "Use systemd and fstab below ROOT (for tests)", "ROOT"},
    WB_CLI_DRY_RUN(&dry_run),
    WB_CLI_JSON(&as_json),
    WB_CLI_END,
};

static const struct wb_cli cli = {
    .name = "venable",
    .arguments = "DIR",
    .path_word = "DIR",
    .summary = "Records DIR from now on and after each boot: mounts it over itself by a unit of\n"
               "systemd or a line of fstab, sets how long versions are kept, and tests it.\n"
               "A second call changes only what differs. vdisable ends it.",
    .examples = "  venable ~/Documents --keep 30d --max 20G   record it from now on\n"
                "  venable -n ~/Documents                     only show what would be done\n"
                "  venable -o store=/mnt/disk/h ~/Documents   the history on another disk\n",
    .plain = true,
    .timeless = true,
    .paths_min = 1,
    .paths_max = 1,
};

static struct wb_unit unit;
static enum wb_way way;
static char *former_options; /* NULL: it was not enabled */
static unsigned changes;

/* "created F", or "would create F"; `step` in JSON. */
static void report(const char *step, const char *done, const char *would, const char *text)
{
    g_autofree char *shown = wb_text_printable(text);

    if (as_json)
        wb_steps_add(step, text);
    else
        printf("%s %s\n", dry_run ? would : done, shown);
    changes++;
}

/* ---- before anything is made ----------------------------------------------------------------------------- */

/* "--keep: reason", from a line "--keep:2:8: reason". */
static const char *without_position(const char *line, const char *option)
{
    line += strlen(option);
    while (*line == ':' && g_ascii_isdigit(line[1]))
        line += 1 + strspn(line + 1, "0123456789");
    return line + strspn(line, ": ");
}

static int check_value(const char *option, const char *key, const char *value)
{
    g_autoptr(GPtrArray) mistakes = g_ptr_array_new_with_free_func(g_free);
    g_autofree char *text = value ? wb_settings_change("", "history", key, value) : NULL;

    if (!value)
        return 0;
    if (strpbrk(value, "\n\r"))
        return wb_cli_usage("%s: a value of one line is expected", option);
    if (wb_settings_check(text, option, mistakes, NULL))
        return 0;
    return wb_cli_usage("%s: %s", option, without_position(mistakes->pdata[0], option));
}

static bool has_control_character(const char *text)
{
    for (; *text; text++) {
        if (g_ascii_iscntrl(*text))
            return true;
    }
    return false;
}

/* systemd and mount(8) mount it from another directory. */
static int check_store_option(void)
{
    g_auto(GStrv) words = g_strsplit(mount_options ? mount_options : "", ",", -1);

    for (char **word = words; *word; word++) {
        g_autofree char *absolute = NULL;

        if (!g_str_has_prefix(*word, "store=") || (*word)[strlen("store=")] == '/')
            continue;
        absolute = g_canonicalize_filename(*word + strlen("store="), NULL);
        return wb_cli_usage("-o %s: an absolute path is expected, such as store=%s", *word, absolute);
    }
    return 0;
}

static int check_options(void)
{
    int r = check_value("--keep", "keep", keep);

    if (for_user + for_system + by_fstab > 1)
        return wb_cli_usage("--user, --system and --fstab exclude each other");
    if (r == 0)
        r = check_value("--max", "max-size", max_size);
    if (r == 0 && mount_options &&
        (strchr(mount_options, '"') || has_control_character(mount_options) || !*mount_options))
        return wb_cli_usage("-o: a list of mount options is expected, such as -o history=close");
    return r == 0 ? check_store_option() : r;
}

static int choose_way(enum wb_way now)
{
    enum wb_way asked = for_user ? WB_WAY_USER : for_system ? WB_WAY_SYSTEM : by_fstab ? WB_WAY_FSTAB : WB_WAY_NONE;
    g_autofree char *described = now != WB_WAY_NONE ? wb_unit_describe(&unit, now) : NULL;
    g_autofree char *word = wb_text_shell(unit.directory);
    bool systemd = wb_unit_has_systemd(&unit);

    if (asked != WB_WAY_NONE && now != WB_WAY_NONE && asked != now)
        return wb_cli_fail(unit.directory, "it is enabled by %s; to change that, run first: wayback disable %s",
                           described, word);
    way = asked != WB_WAY_NONE  ? asked
          : now != WB_WAY_NONE  ? now
          : geteuid() != 0      ? WB_WAY_USER
          : systemd             ? WB_WAY_SYSTEM
                                : WB_WAY_FSTAB;
    if (way == WB_WAY_FSTAB || systemd)
        return wb_unit_check(&unit, way);
    return wb_cli_fail(unit.directory, "systemd does not run here, so that no unit would mount it. Root can write a "
                       "line of fstab: wayback enable --fstab %s; to record it until it is unmounted: wayback mount "
                       "%s; in the foreground, as in a container: wayback -f %s", word, word, word);
}

/* Exit status of wayback -n for wrong options. */
#define WRONG_OPTIONS 2

/* As the daemon checks it, which mounts nothing yet. Of a place that is mounted, only options can be checked. */
static int check_traps(bool mounted)
{
    const char *arguments[6];
    g_autofree char *output = NULL, *last = NULL;
    struct stat st;
    int n = 0, status;

    if (geteuid() != 0 && stat(unit.directory, &st) == 0 && st.st_uid != geteuid())
        return wb_cli_fail(unit.directory, "it belongs to %s; that user or root can enable it",
                           wb_text_user(st.st_uid));
    arguments[n++] = unit.daemon;
    arguments[n++] = "-n";
    if (*unit.options) {
        arguments[n++] = "-o";
        arguments[n++] = unit.options;
    }
    arguments[n++] = unit.directory;
    arguments[n] = NULL;
    status = wb_program_run(arguments, -1, &output);
    if (status == 0 || (mounted && status != WRONG_OPTIONS))
        return 0;
    last = wb_program_last_line(output);
    return wb_cli_fail(status == WRONG_OPTIONS ? unit.directory : NULL, "%s", last);
}

static bool has_word(const char *list, const char *word)
{
    g_auto(GStrv) words = g_strsplit(list ? list : "", ",", -1);

    return g_strv_contains((const char *const *)words, word);
}

/* Root's mounts serve everybody. g_free. */
static char *choose_options(enum wb_way now)
{
    former_options = now != WB_WAY_NONE ? wb_unit_options(&unit, now) : NULL;
    if (!mount_options && former_options)
        return g_strdup(former_options);
    if (geteuid() != 0 || has_word(mount_options, "allow_other") || has_word(mount_options, "allow_root"))
        return g_strdup(mount_options ? mount_options : "");
    return g_strdup_printf("allow_other%s%s", mount_options ? "," : "", mount_options ? mount_options : "");
}

/* ---- mounting -------------------------------------------------------------------------------------------- */

static int write_unit(enum wb_unit_change *ret)
{
    g_autofree char *path = NULL;

    *ret = wb_unit_write(&unit, way, dry_run, &path);
    if (*ret == WB_UNIT_FAILED)
        return WB_EXIT_FAILED;
    if (*ret == WB_UNIT_NEW && way == WB_WAY_FSTAB)
        report("add-line", "added a line to", "would add a line to", path);
    else if (*ret == WB_UNIT_NEW)
        report("create", "created", "would create", path);
    else if (*ret == WB_UNIT_CHANGED)
        report("change", "changed", "would change", path);
    return dry_run ? 0 : wb_unit_enable(&unit, way);
}

/* The value of a mount option, as of "store="; g_free, NULL: it is not among them. */
static char *value_of(const char *list, const char *name)
{
    g_auto(GStrv) words = g_strsplit(list ? list : "", ",", -1);

    for (char **word = words; *word; word++) {
        if (g_str_has_prefix(*word, name))
            return g_strdup(*word + strlen(name));
    }
    return NULL;
}

/* Another store has to be tried: a mistake would show at the next boot only, and nothing would be recorded then. */
static bool has_other_store(void)
{
    g_autofree char *former = value_of(former_options, "store="), *now = value_of(unit.options, "store=");

    return g_strcmp0(former, now) != 0;
}

/* New options need a new mount. Nobody is to lose their files for that. */
static int restart(struct wb_mount *mount)
{
    g_autoptr(GPtrArray) holders = wb_busy_find(unit.directory, (pid_t)mount->hello.pid);
    g_autofree char *text = wb_busy_print(holders), *said = NULL;
    int r;

    close(mount->root_fd);
    mount->root_fd = -1;
    if (holders->len == 0 && (dry_run || wb_unit_unmount(&unit, &said) == 0)) {
        r = dry_run ? 0 : wb_unit_start(&unit, way);
        if (r == 0)
            report("remount", "mounted again, with the new options:", "would mount again, with the new options:",
                   unit.directory);
        return r;
    }
    if (has_other_store())
        return wb_cli_fail(unit.directory, "another store needs a new mount, and the present one is in use by %s; end "
                           "these, and try again", *text ? text : "other programs");
    wb_cli_warn(unit.directory, "the new options hold from the next mount on; it is in use by %s",
                *text ? text : "others");
    return 0;
}

/* As before: the file or the line, the link of systemd, and the mount, if there was one. */
static void put_back(enum wb_way now, const char *text, bool was_mounted)
{
    bool is_mounted = wb_unit_is_mounted(unit.directory);
    g_autofree char *word = wb_text_shell(unit.directory);

    if (now == WB_WAY_NONE)
        wb_unit_remove(&unit, way);
    if (now != WB_WAY_NONE || text)
        wb_unit_put_back(&unit, way, text);
    g_free(unit.options);
    unit.options = g_strdup(former_options ? former_options : "");
    if (was_mounted && !is_mounted && (now == WB_WAY_NONE || wb_unit_start(&unit, way) != 0))
        wb_cli_fail(unit.directory, "it is not mounted any more, so nothing is recorded; run: wayback enable %s", word);
    else
        wb_cli_warn(unit.directory, now == WB_WAY_NONE ? "nothing was enabled" : "it is enabled as it was before");
}

static int mount_now(struct wb_mount *mount, enum wb_unit_change change)
{
    int r;

    if (mount && change == WB_UNIT_CHANGED)
        return restart(mount);
    if (mount && change == WB_UNIT_NEW && !as_json) {
        g_autofree char *shown = wb_text_printable(unit.directory);

        printf("%s is mounted already, by process %u\n", shown, mount->hello.pid);
    }
    if (mount)
        return 0;
    r = dry_run ? 0 : wb_unit_start(&unit, way);
    if (r == 0)
        report("mount", "mounted", "would mount", unit.directory);
    return r;
}

/* ---- the policy ------------------------------------------------------------------------------------------ */

static int report_setting(const char *json, const char *key, const char *value)
{
    struct wb_setting *setting = wb_settings_find(json, key);
    g_autofree char *text = g_strdup_printf("%s = %s (was: %s)", key, value,
                                            setting && setting->value ? setting->value : "not set");
    int differs = !setting || !setting->is_set || g_strcmp0(setting->value, value) != 0;

    if (differs)
        report("set", "set", "would set", text);
    wb_setting_free(setting);
    return differs;
}

static int set_policy(void)
{
    const char *const pairs[] = {"keep", keep, "max-size", max_size, NULL};
    g_autoptr(GPtrArray) mistakes = g_ptr_array_new_with_free_func(g_free);
    g_autofree char *json = NULL, *text = NULL;
    struct wb_settings settings;
    int r, differs = 0;

    if (!keep && !max_size)
        return 0;
    r = wb_settings_open(unit.directory, &settings);
    if (r == 0 && !(text = wb_settings_with(settings.text, settings.path, pairs)))
        r = WB_EXIT_FAILED;
    if (r == 0) {
        wb_settings_check(settings.text, settings.path, mistakes, &json);
        for (int i = 0; pairs[i]; i += 2)
            differs += pairs[i + 1] ? report_setting(json ? json : "", pairs[i], pairs[i + 1]) : 0;
    }
    if (r == 0 && differs > 0 && !dry_run)
        r = wb_settings_write(&settings, text);
    wb_settings_clear(&settings);
    return r;
}

/* Whether the present file takes the new values. Without a history there is no file yet. */
static int check_policy(bool mounted)
{
    const char *const pairs[] = {"keep", keep, "max-size", max_size, NULL};
    g_autofree char *word = wb_text_shell(unit.directory);
    g_autofree char *tree = mounted ? g_strdup(unit.directory) : wb_tree_above(unit.directory), *text = NULL;
    struct wb_settings settings;
    int r;

    if ((!keep && !max_size) || !tree)
        return 0;
    r = wb_settings_open(unit.directory, &settings);
    if (r == 0 && !(text = wb_settings_with(settings.text, settings.path, pairs)))
        r = wb_cli_fail(unit.directory, "nothing was changed; correct these mistakes first: wayback config %s edit",
                        word);
    wb_settings_clear(&settings);
    return r;
}

static void announce_policy(bool mounted)
{
    g_autofree char *tree = mounted ? g_strdup(unit.directory) : wb_tree_above(unit.directory);
    g_autofree char *text = g_strdup_printf("%s%s%s%s%s", keep ? "keep = " : "", keep ? keep : "",
                                            keep && max_size ? ", " : "", max_size ? "max-size = " : "",
                                            max_size ? max_size : "");

    if (tree)
        set_policy();
    else if (*text)
        report("set", "set", "would set", text);
}

/* ---- afterwards ------------------------------------------------------------------------------------------ */

static void print_policy(void)
{
    g_autoptr(GPtrArray) mistakes = g_ptr_array_new_with_free_func(g_free);
    g_autofree char *json = NULL;
    struct wb_settings settings;
    struct wb_setting *age, *size;

    if (wb_settings_open(unit.directory, &settings) != 0 ||
        !wb_settings_check(settings.text, settings.path, mistakes, &json)) {
        wb_settings_clear(&settings);
        return;
    }
    age = wb_settings_find(json, "keep");
    size = wb_settings_find(json, "max-size");
    if (age && age->value && size && size->value)
        printf("  %-9severy version for %s, whatever size that takes; older ones until the history takes %s\n", "keeps",
               age->value, size->value);
    else if (age && age->value)
        printf("  %-9severy version for at least %s\n", "keeps", age->value);
    wb_setting_free(age);
    wb_setting_free(size);
    wb_settings_clear(&settings);
}

/* Without it, systemd ends the units of a user at the last logout, and begins them at the first login. */
static void advise_lingering(void)
{
    const struct passwd *me = getpwuid(geteuid());
    g_autofree char *path = me ? g_strdup_printf("%s/var/lib/systemd/linger/%s", unit.root, me->pw_name) : NULL;

    if (way == WB_WAY_USER && path && access(path, F_OK) < 0)
        printf("  %-9sit is mounted while you are logged in; from boot on: loginctl enable-linger\n", "note");
}

static int finish(bool stood_in_it)
{
    g_autofree char *status = wb_program_find("vstatus");
    const char *arguments[] = {status, unit.directory, NULL};
    struct wb_mount *mount = wb_unit_mount(unit.directory);
    int r;

    if (!mount)
        return wb_cli_fail(unit.directory, "was started, but is not mounted; see: wayback status, and the system log");
    r = wb_probe(mount, unit.directory);
    wb_mount_free(mount);
    if (r != 0)
        return r;
    is_tested = true;
    if (!as_json) {
        printf("%s: a file was written, changed, read as of before, and removed with its history\n",
               changes > 0 ? "tested" : "nothing to change; tested");
        if (status)
            wb_program_run(arguments, -1, NULL);
        print_policy();
        advise_lingering();
    }
    if (stood_in_it)
        wb_cli_warn(NULL, "the current directory is below the mount %s, where nothing is recorded; run `cd .` to enter "
                    "the mount", unit.directory);
    return 0;
}

/* ---- all of it ------------------------------------------------------------------------------------------- */

static int carry_out(enum wb_way now)
{
    g_autofree char *here = g_get_current_dir();
    struct wb_mount *mount = wb_unit_mount(unit.directory);
    bool is_mounted = mount != NULL, stands = !mount && wb_path_below(here, unit.directory, NULL);
    enum wb_unit_change change = WB_UNIT_SAME;
    g_autofree char *text = wb_unit_text(&unit, way);
    int r = check_traps(is_mounted);

    if (r == 0)
        r = check_policy(is_mounted);
    /* Our own place must not keep it busy. */
    if (r == 0 && chdir("/") < 0)
        r = wb_cli_fail("/", "%s", wb_errno_text(errno));
    if (r != 0) {
        wb_mount_free(mount);
        return r;
    }
    r = write_unit(&change);
    if (r == 0)
        r = mount_now(mount, change);
    wb_mount_free(mount);
    if (r != 0 && !dry_run && change != WB_UNIT_FAILED) {
        put_back(now, text, is_mounted);
        return r;
    }
    if (r == 0 && dry_run) {
        announce_policy(is_mounted);
        if (changes == 0 && !as_json)
            printf("nothing to change\n");
        return 0;
    }
    if (r == 0 && !wb_cli_interrupted())
        r = set_policy();
    return r == 0 && !wb_cli_interrupted() ? finish(stands) : r;
}

int main(int argc, char **argv)
{
    g_autofree char *directory = NULL, *chosen = NULL;
    enum wb_way now;
    struct stat st;
    int r = wb_cli_begin(&cli, options, &argc, &argv), end;

    if (r >= 0)
        return r;
    r = check_options();
    if (r != 0)
        return r;
    directory = wb_path_real(argv[1]);
    if (!directory && errno == ENOTCONN)
        directory = wb_path_absolute(argv[1]);
    if (!directory && (errno == ELOOP || errno == EXDEV))
        return wb_cli_fail(argv[1], "%s", wb_path_error_text(errno));
    if (!directory || (stat(directory, &st) == 0 && !S_ISDIR(st.st_mode)))
        return wb_cli_fail(argv[1], "%s; name a directory that exists", wb_errno_text(directory ? ENOTDIR : errno));
    wb_unit_init(&unit, root, directory, NULL);
    now = wb_unit_find(&unit);
    chosen = choose_options(now);
    g_free(unit.options);
    unit.options = g_strdup(chosen);
    wb_cli_stopped("run the same command again to complete it");
    r = now == WB_WAY_NONE ? wb_unit_check_owner(&unit) : 0;
    if (r == 0)
        r = choose_way(now);
    if (r == 0) {
        if (as_json)
            wb_steps_begin(unit.directory, dry_run);
        r = carry_out(now);
        if (as_json)
            wb_steps_end("tested", is_tested);
    }
    wb_unit_clear(&unit);
    g_free(former_options);
    end = wb_cli_end();
    return MAX(r, end);
}

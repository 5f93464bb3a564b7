/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* vconfig: the wayback.conf of a tree: shown, checked, edited, and single keys of it; applied only if it is correct. */
#include "client/fd.h"
#include "common/cli.h"
#include "common/json.h"
#include "common/mount.h"
#include "common/text.h"
#include "service/program.h"
#include "service/settings.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static gboolean json, dry_run;

static const GOptionEntry options[] = {
    WB_CLI_DRY_RUN(&dry_run),
    WB_CLI_JSON(&json),
    WB_CLI_END,
};

static const struct wb_cli cli = {
    .name = "vconfig",
    .arguments = "DIR [ACTION [KEY [VALUE]]]",
    .path_word = "DIR",
    .summary = "Shows or changes the settings of a tree (its wayback.conf): how long versions\n"
               "are kept, automatic snapshots, paths that are not recorded. ACTION is show (the\n"
               "default), edit, check, get KEY, set KEY VALUE or unset KEY. Changes are applied\n"
               "only if they are correct. KEY may have its section before it: history.keep.",
    .examples = "  vconfig ~/work                    show the settings\n"
                "  vconfig ~/work edit               change them in an editor\n"
                "  vconfig ~/work get keep           print one of them\n"
                "  vconfig ~/work set keep 30d       keep every version for 30 days\n"
                "  vconfig ~/work set max-size 20G   delete older versions beyond 20 GiB\n"
                "  vconfig ~/work unset max-size     remove that limit\n"
                "  vconfig ~/work check              list mistakes, with line and column\n",
    .plain = true,
    .timeless = true,
    .paths_min = 1,
};

static struct wb_settings settings;

static void print_mistakes(const GPtrArray *mistakes)
{
    for (guint i = 0; i < mistakes->len; i++)
        wb_cli_fail(NULL, "%s", (const char *)mistakes->pdata[i]);
}

/* ---- showing --------------------------------------------------------------------------------------------- */

static void print_mistakes_json(const GPtrArray *mistakes)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();
    g_autoptr(GPtrArray) lines = g_ptr_array_new();

    for (guint i = 0; i < mistakes->len; i++)
        g_ptr_array_add(lines, mistakes->pdata[i]);
    g_ptr_array_add(lines, NULL);
    json_builder_begin_object(builder);
    wb_json_string(builder, "file", settings.path);
    wb_json_strings(builder, "mistakes", (const char *const *)lines->pdata);
    json_builder_end_object(builder);
    wb_json_document(builder);
}

/* As `wayback --check-config --json` prints it, with the file as users know it. */
static void print_json(const char *text)
{
    g_autoptr(JsonParser) parser = json_parser_new();
    g_autoptr(JsonBuilder) builder = json_builder_new();
    JsonObjectIter iter;
    const char *name;
    JsonNode *value;

    if (!json_parser_load_from_data(parser, text, -1, NULL))
        return;
    json_builder_begin_object(builder);
    wb_json_string(builder, "file", settings.path);
    json_object_iter_init_ordered(&iter, json_node_get_object(json_parser_get_root(parser)));
    while (json_object_iter_next_ordered(&iter, &name, &value)) {
        if (strcmp(name, "schema") == 0 || g_str_has_prefix(name, "file"))
            continue;
        json_builder_set_member_name(builder, name);
        json_builder_add_value(builder, json_node_copy(value));
    }
    json_builder_end_object(builder);
    wb_json_document(builder);
}

static void print_setting(const struct wb_setting *setting)
{
    g_autofree char *shown = wb_text_printable(setting->value ? setting->value : "not set");

    printf("  %s.%s = %s%s\n", setting->section, setting->key, shown,
           setting->is_set || !setting->value ? "" : " (default)");
}

/* The keys in their order, with the values in force. */
static void print_settings(const char *text)
{
    g_autofree char *names = wb_settings_names(text), *shown = wb_text_printable(settings.path);
    g_auto(GStrv) list = g_strsplit(names, ", ", -1);

    printf("%s\n", shown);
    for (char **name = list; *name; name++) {
        struct wb_setting *setting = wb_settings_find(text, *name);

        if (setting)
            print_setting(setting);
        wb_setting_free(setting);
    }
}

/* `only_check`: mistakes, or that there are none. */
static int show(bool only_check)
{
    g_autoptr(GPtrArray) mistakes = g_ptr_array_new_with_free_func(g_free);
    g_autofree char *checked = NULL, *shown = wb_text_printable(settings.path);

    if (!wb_settings_check(settings.text, settings.path, mistakes, &checked)) {
        print_mistakes(mistakes);
        if (json)
            print_mistakes_json(mistakes);
        return WB_EXIT_FAILED;
    }
    if (json)
        print_json(checked);
    else if (only_check)
        printf("%s: no mistake\n", shown);
    else
        print_settings(checked);
    return 0;
}

/* ---- single keys ----------------------------------------------------------------------------------------- */

/* NULL after an error line. An incorrect file has no values. */
static struct wb_setting *find(const char *name, int *ret)
{
    g_autoptr(GPtrArray) mistakes = g_ptr_array_new_with_free_func(g_free);
    g_autofree char *checked = NULL, *names = NULL;
    struct wb_setting *setting;

    *ret = WB_EXIT_FAILED;
    if (!wb_settings_check(settings.text, settings.path, mistakes, &checked)) {
        print_mistakes(mistakes);
        wb_cli_fail(NULL, "the file has mistakes; correct them with: edit");
        return NULL;
    }
    setting = wb_settings_find(checked, name);
    if (!setting) {
        names = wb_settings_names(checked);
        *ret = wb_cli_usage("%s: no such key; the keys are: %s", name, names);
    }
    return setting;
}

static void add_value(JsonBuilder *builder, const char *key, const char *value)
{
    if (value)
        wb_json_string(builder, key, value);
    else
        wb_json_null(builder, key);
}

static int get(const char *name)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();
    int r;
    struct wb_setting *setting = find(name, &r);

    if (!setting)
        return r;
    if (json) {
        json_builder_begin_object(builder);
        wb_json_string(builder, "section", setting->section);
        wb_json_string(builder, "key", setting->key);
        add_value(builder, "value", setting->value);
        add_value(builder, "default", setting->initial);
        wb_json_bool(builder, "set", setting->is_set);
        json_builder_end_object(builder);
        wb_json_document(builder);
    } else {
        g_autofree char *shown = wb_text_printable(setting->value ? setting->value : "");

        printf("%s\n", shown);
    }
    wb_setting_free(setting);
    return 0;
}

/* `value` NULL: it is not set any more. */
static void report_set(const struct wb_setting *setting, const char *value, bool is_changed)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();

    json_builder_begin_object(builder);
    wb_json_string(builder, "section", setting->section);
    wb_json_string(builder, "key", setting->key);
    add_value(builder, "value", value);
    add_value(builder, "was", setting->value);
    wb_json_bool(builder, "changed", is_changed);
    wb_json_bool(builder, "dry_run", dry_run);
    json_builder_end_object(builder);
    wb_json_document(builder);
}

/* The same. */
static void print_change(const struct wb_setting *setting, const char *value, bool changed)
{
    if (json)
        report_set(setting, value, changed);
    else if (!changed)
        printf("%s.%s: nothing to change\n", setting->section, setting->key);
    else
        printf("%s%s.%s = %s (was: %s)\n", dry_run ? "would set " : "", setting->section, setting->key,
               value ? value : "not set", setting->value ? setting->value : "not set");
}

static int set(const char *name, const char *value)
{
    g_autoptr(GPtrArray) mistakes = g_ptr_array_new_with_free_func(g_free);
    g_autofree char *text = NULL;
    bool changed;
    int r;
    struct wb_setting *setting = find(name, &r);

    if (!setting)
        return r;
    text = wb_settings_change(settings.text, setting->section, setting->key, value);
    changed = strcmp(text, settings.text) != 0;
    r = 0;
    if (changed && !wb_settings_check(text, settings.path, mistakes, NULL)) {
        print_mistakes(mistakes);
        r = wb_cli_fail(NULL, "nothing was changed");
    } else if (changed && !dry_run) {
        r = wb_settings_write(&settings, text);
    }
    if (r == 0)
        print_change(setting, value, changed);
    wb_setting_free(setting);
    return r;
}

/* ---- the editor ------------------------------------------------------------------------------------------ */

/* In a directory that no other user can enter. NULL after an error line; g_free. */
static char *make_copy(void)
{
    g_autofree char *directory = g_build_filename(g_get_tmp_dir(), "wayback-config-XXXXXX", NULL);
    g_autofree char *path = NULL;

    if (!g_mkdtemp_full(directory, 0700)) {
        wb_cli_fail(directory, "cannot be created (%s)", wb_errno_text(errno));
        return NULL;
    }
    path = g_build_filename(directory, "wayback.conf", NULL);
    if (!g_file_set_contents_full(path, settings.text, -1, G_FILE_SET_CONTENTS_NONE, 0600, NULL)) {
        wb_cli_fail(path, "cannot be written");
        return NULL;
    }
    return g_steal_pointer(&path);
}

static void remove_copy(const char *path)
{
    g_autofree char *directory = g_path_get_dirname(path);
    g_autoptr(GDir) listing = g_dir_open(directory, 0, NULL);
    const char *name;

    /* Editors leave backups beside it. */
    while (listing && (name = g_dir_read_name(listing))) {
        g_autofree char *other = g_build_filename(directory, name, NULL);

        unlink(other);
    }
    rmdir(directory);
}

static bool ask_again(void)
{
    char answer[16] = "";

    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO) || wb_cli_interrupted())
        return false;
    fprintf(stderr, "%s: edit it again? [Y/n] ", wb_cli_name());
    return fgets(answer, sizeof(answer), stdin) && g_ascii_tolower(answer[0]) != 'n' && !wb_cli_interrupted();
}

/* The copy until it is correct: its text, g_free. NULL after an error line; *ret_keep: it has changes. */
static char *edit_copy(const char *path, bool *ret_keep)
{
    for (;;) {
        g_autoptr(GPtrArray) mistakes = g_ptr_array_new_with_free_func(g_free);
        g_autofree char *text = NULL;

        if (wb_program_edit(path) != 0)
            return NULL;
        if (!g_file_get_contents(path, &text, NULL, NULL)) {
            wb_cli_fail(path, "cannot be read; nothing was applied");
            return NULL;
        }
        *ret_keep = strcmp(text, settings.text) != 0;
        if (wb_settings_check(text, settings.path, mistakes, NULL))
            return g_steal_pointer(&text);
        for (guint i = 0; i < mistakes->len; i++)
            wb_cli_warn(NULL, "%s", (const char *)mistakes->pdata[i]);
        if (!ask_again()) {
            wb_cli_fail(settings.path, "nothing was applied, because of %s", mistakes->len > 1 ? "these mistakes"
                                                                                             : "this mistake");
            return NULL;
        }
    }
}

static void report_edit(bool is_changed)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();

    json_builder_begin_object(builder);
    wb_json_string(builder, "file", settings.path);
    wb_json_bool(builder, "changed", is_changed);
    wb_json_bool(builder, "dry_run", dry_run);
    json_builder_end_object(builder);
    wb_json_document(builder);
}

static int apply(const char *text)
{
    g_autofree char *shown = wb_text_printable(settings.path);
    struct wb_settings now;
    int r = 0;

    if (strcmp(text, settings.text) == 0) {
        if (json)
            report_edit(false);
        else
            printf("%s: nothing to change\n", shown);
        return 0;
    }
    if (wb_settings_open(settings.tree, &now) != 0)
        r = WB_EXIT_FAILED;
    else if (strcmp(now.text, settings.text) != 0)
        r = wb_cli_fail(settings.path, "it was changed meanwhile by another program; nothing was applied, edit it "
                        "again");
    else if (!dry_run)
        r = wb_settings_write(&now, text);
    if (r == 0 && json)
        report_edit(true);
    else if (r == 0)
        printf("%s: %s\n", shown, dry_run ? "no mistake; would be applied" : now.daemon ? "applied" : "saved; the next "
               "mount applies it");
    wb_settings_clear(&now);
    return r;
}

static int edit(void)
{
    g_autofree char *path = make_copy(), *text = NULL;
    bool keep = false;
    int r;

    if (!path)
        return WB_EXIT_FAILED;
    text = edit_copy(path, &keep);
    r = text ? apply(text) : WB_EXIT_FAILED;
    if (r != 0 && keep)
        wb_cli_warn(NULL, "your text remains in %s", path);
    else
        remove_copy(path);
    return r;
}

/* ---- the command line ------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    int words; /* behind it */
} actions[] = {{"show", 0}, {"edit", 0}, {"check", 0}, {"get", 1}, {"set", 2}, {"unset", 1}};

static int check_action(int argc, char **argv)
{
    for (unsigned i = 0; argc > 2 && i < G_N_ELEMENTS(actions); i++) {
        if (strcmp(argv[2], actions[i].name) != 0)
            continue;
        if (argc - 3 != actions[i].words)
            return wb_cli_usage("%s needs %s; usage: %s DIR %s%s", argv[2],
                                actions[i].words == 0   ? "no further word"
                                : actions[i].words == 1 ? "a KEY"
                                                        : "a KEY and a VALUE",
                                wb_cli_name(), argv[2],
                                actions[i].words == 0   ? ""
                                : actions[i].words == 1 ? " KEY"
                                                        : " KEY VALUE");
        if (argc > 4 && strpbrk(argv[4], "\n\r"))
            return wb_cli_usage("set: a VALUE of one line is expected");
        return 0;
    }
    if (argc > 2)
        return wb_cli_usage("%s: no such action; show, edit, check, get, set and unset are", argv[2]);
    return 0;
}

static int act(int argc, char **argv)
{
    const char *action = argc > 2 ? argv[2] : "show";

    if (strcmp(action, "get") == 0)
        return get(argv[3]);
    if (strcmp(action, "set") == 0)
        return set(argv[3], argv[4]);
    if (strcmp(action, "unset") == 0)
        return set(argv[3], NULL);
    return strcmp(action, "edit") == 0 ? edit() : show(strcmp(action, "check") == 0);
}

int main(int argc, char **argv)
{
    int r = wb_cli_begin(&cli, options, &argc, &argv), end;

    if (r >= 0)
        return r;
    r = check_action(argc, argv);
    if (r != 0)
        return r;
    r = wb_settings_open(argv[1], &settings);
    if (r == 0)
        r = act(argc, argv);
    wb_settings_clear(&settings);
    end = wb_cli_end();
    return MAX(r, end);
}

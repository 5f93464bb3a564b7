/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* `wayback --check-config` and `--config-path`. */
#include "daemon/options/config_file.h"

#include "base/cleanup.h"
#include "format/format.h"
#include "policy/keeper.h"
#include "wayback/control.h"
#include "wayback/quote.h"
#include "wayback/server.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1 };

/* ---- where it is ----------------------------------------------------------------------------- */

/*
 * A mount may cover its own SRC: then the daemon's descriptors lead there. `lasting`: a path for other programs,
 * through the descriptors of the daemon, and so only if it is one of root or of the caller; else one through a
 * descriptor of this process, which remains open. 0 and *ret (NULL: no mount; g_free), or a negative errno; -EBADMSG:
 * the server of the mount is not believed.
 */
static int path_below(const char *path, bool lasting, char **ret)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    g_autofree struct wb_control *control = g_new0(struct wb_control, 1);
    const struct wb_control_hello *hello = (const void *)control->data;
    g_autofree char *process = NULL;
    int tree = -1, store = -1, r;
    uid_t user;

    *ret = NULL;
    control->version = WB_CONTROL_VERSION;
    control->command = WB_CONTROL_HELLO;
    if (fd < 0 || ioctl(fd, WB_CONTROL_IOCTL, control) < 0 || wb_control_check(WB_CONTROL_HELLO, 0, control) < 0)
        return 0;
    r = wb_server_open(fd, hello, &tree, &store);
    if (r == 0 && lasting && (wb_server_user(fd, &user) < 0 || (user != 0 && user != geteuid())))
        r = -EBADMSG;
    if (r < 0)
        return r == -EPERM ? 0 : r; /* for root and the user who mounted */
    process = lasting ? g_strdup_printf("%u", hello->pid) : g_strdup("self");
    if (store >= 0)
        *ret = g_strdup_printf("/proc/%s/fd/%d/" WB_CONFIG_NAME, process, lasting ? hello->store_fd : store);
    else
        *ret = g_strdup_printf("/proc/%s/fd/%d/" WB_STORE_NAME "/" WB_CONFIG_NAME, process,
                               lasting ? hello->source_fd : tree);
    return 0;
}

/* Of a tree, a mount, a store, or the file itself. g_free; NULL after an error line. */
static char *find(const struct wb_options *options, bool lasting)
{
    char *below;
    struct stat st;
    int r;

    if (options->store)
        return g_build_filename(options->store, WB_CONFIG_NAME, NULL);
    if (stat(options->source, &st) < 0 || !S_ISDIR(st.st_mode))
        return g_strdup(options->source);
    r = path_below(options->source, lasting, &below);
    if (r < 0)
        fprintf(stderr, "wayback: %s: %s\n", options->source, r == -EBADMSG ? WB_SERVER_NOT_BELIEVED : g_strerror(-r));
    if (below || r < 0)
        return below;
    return g_build_filename(options->source, WB_STORE_NAME, WB_CONFIG_NAME, NULL);
}

/* `path` as another process can use it, unless the server of the mount is not to be believed for that long. g_free. */
static char *lasting_path(const struct wb_options *options, const char *path)
{
    char *below = NULL;

    if (!g_str_has_prefix(path, "/proc/self/") || path_below(options->source, true, &below) < 0 || !below)
        return g_strdup(path);
    return below;
}

/* ---- what it means, for people --------------------------------------------------------------- */

static void print_snapshots(const struct wb_schedule *schedule)
{
    bool any = false;

    for (enum wb_period period = WB_HOURLY; period < WB_PERIODS; period++) {
        if (!schedule->periods[period].set)
            continue;
        any = true;
        printf("snapshots: %s", wb_period_name(period));
        if (period != WB_HOURLY)
            printf(" at %02u:%02u", schedule->at / 60, schedule->at % 60);
        printf(", the newest %u\n", schedule->periods[period].keep);
    }
    if (schedule->periods[WB_EVERY].set)
        printf("snapshots: every %u s, the newest %u\n", schedule->every, schedule->periods[WB_EVERY].keep);
    else if (!any)
        printf("snapshots: none automatically\n");
}

static void print_mode(enum wb_compact_mode mode, unsigned rest)
{
    if (mode == WB_MODE_NONE)
        printf("history: not packed automatically");
    else if (mode == WB_MODE_DELTA_ZSTD)
        printf("history: packed when idle for %u s", rest);
    else
        printf("history: packed (%s) when idle for %u s", wb_compact_mode_name(mode), rest);
}

static void print_compaction(const struct wb_compaction *compaction)
{
    print_mode(compaction->mode, compaction->rest);
    printf("\n");
    for (guint i = 0; compaction->rules && i < compaction->rules->len; i++) {
        const struct wb_path_rule *rule = g_ptr_array_index(compaction->rules, i);

        print_mode(rule->setting, compaction->rest);
        printf(" ([%s], line %u)\n", rule->title, rule->line);
    }
}

static void print_rule(const char *what, const struct wb_policy_rule *rule)
{
    g_autofree char *words = wb_retention_print(&rule->retention);

    if (rule->title)
        printf("%s: %s ([%s], line %u)\n", what, words, rule->title, rule->line);
    else
        printf("%s: %s\n", what, words);
}

static void print_room(const char *before, const struct wb_room *room, const char *behind)
{
    g_autofree char *value = wb_room_print(room);

    if (room->bytes || room->percent)
        printf("space: %s %s%s\n", before, value, behind);
}

/* Only history that no rule protects can be deleted for space. */
static void print_hold(const struct wb_policy *policy)
{
    bool hard = policy->max_size.hard, reserve = policy->reserve.bytes || policy->reserve.percent;
    int64_t hold = wb_policy_hold(policy);
    g_autofree char *age = wb_span_print_age(hold);

    if (hard && hold > 0)
        printf("space: at max-size, also versions that the rules above protect are deleted, the oldest first (hard); "
               "snapshots are not\n");
    if (hard && (hold == 0 || !reserve))
        return;
    if (hard && hold == WB_FOREVER)
        printf("space: history that is kept forever is never deleted for reserve\n");
    else if (hard)
        printf("space: versions replaced less than %s ago are never deleted for reserve\n", age);
    else if (hold == WB_FOREVER)
        printf("space: history that is kept forever is never deleted for these limits\n");
    else if (hold > 0)
        printf("space: versions replaced less than %s ago are never deleted for these limits%s\n", age,
               policy->max_size.bytes || policy->max_size.percent
                   ? "; the history may grow larger (not with the word hard after max-size)"
                   : "");
}

static void print_users(const struct wb_policy *policy)
{
    int64_t hold = wb_policy_shortest_hold(policy);
    g_autofree char *age = wb_span_print_age(hold);

    if (hold == WB_FOREVER)
        printf("users: all of it is kept, so their changes fail at the limit\n");
    else if (hold == 0)
        printf("users: at the limit, the oldest history of their own files is deleted, at any age\n");
    else
        printf("users: at the limit, history of their own files replaced more than %s ago is deleted\n", age);
}

static void print_reach(const struct wb_policy *policy)
{
    int64_t reach = wb_policy_reach(policy);
    g_autofree char *age = wb_span_print_age(reach);

    if (reach != WB_FOREVER)
        printf("versions: those replaced more than %s ago are deleted%s, except for snapshots and everything since "
               "the oldest of these\n", age, wb_policy_has_room(policy) ? " when space runs low" : "");
}

static void print_policy(const struct wb_policy *policy)
{
    bool ageless;

    if (!wb_policy_says_something(policy))
        return;
    ageless = wb_policy_has_room(policy) && wb_policy_hold(policy) == 0;
    if (!ageless || policy->everything.retention.most)
        print_rule("versions", &policy->everything);
    if (ageless)
        printf("versions: no age is set; when space runs low, the oldest are deleted, at any age\n");
    for (guint i = 0; policy->rules && i < policy->rules->len; i++)
        print_rule("versions", g_ptr_array_index(policy->rules, i));
    print_reach(policy);
    print_room(policy->max_size.hard || ageless ? "the history uses at most"
                                                : "older versions are deleted where the history uses more than",
               &policy->max_size, policy->max_size.percent ? " of the device" : "");
    print_room("at least", &policy->reserve,
               policy->reserve.percent ? " of the device are kept free" : " are kept free");
    print_room("the history of the changes of each user except root uses at most", &policy->user_max,
               policy->user_max.percent ? " of the device" : "");
    if (policy->user_max.bytes || policy->user_max.percent)
        print_users(policy);
    if (wb_policy_has_room(policy))
        print_hold(policy);
    if (wb_policy_has_room(policy) && wb_keeper_thin_pause(policy) != WB_FOREVER)
        printf("space: when it runs low, versions that no rule keeps are deleted first, then the oldest ones\n");
}

static void print_recording(const struct wb_recording_rules *rules)
{
    static const char *const words[WB_RECORDINGS] = {
        "every change is recorded",
        "content is recorded at each close",
        "changes are not recorded, and states of that time are refused",
    };

    for (guint i = 0; rules->list && i < rules->list->len; i++) {
        const struct wb_path_rule *rule = g_ptr_array_index(rules->list, i);

        printf("history: %s ([%s], line %u)\n", words[rule->setting], rule->title, rule->line);
    }
}

/* ---- key by key ------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    unsigned in;
} sections[] = {{"snapshots", WB_IN_SNAPSHOTS}, {"history", WB_IN_HISTORY}};

/* The line that sets it, or NULL. */
static const struct wb_config_setting *setting_of(const struct wb_config *config, const char *section,
                                                  const struct wb_config_key *key)
{
    for (guint i = 0; i < config->settings->len; i++) {
        const struct wb_config_setting *setting = &g_array_index(config->settings, struct wb_config_setting, i);

        if (setting->key == key && strcmp(setting->section, section) == 0)
            return setting;
    }
    return NULL;
}

static void print_key(const struct wb_config_key *key, const struct wb_config_setting *setting)
{
    const char *initial = key->initial ? key->initial : "-";

    printf("%-14s  %-18s  %-10s  ", key->name, setting ? setting->value : initial, initial);
    for (const char *at = key->help; *at; at++)
        if (*at != '*') /* bold, in the manual page */
            putchar(*at);
    putchar('\n');
}

static void print_keys(const struct wb_config *config)
{
    const char *section = NULL;

    printf("\nKEY             VALUE               DEFAULT     MEANING\n");
    for (size_t i = 0; i < G_N_ELEMENTS(sections); i++) {
        printf("[%s]\n", sections[i].name);
        for (const struct wb_config_key *key = wb_config_keys; key->name; key++)
            if (key->sections & sections[i].in)
                print_key(key, setting_of(config, sections[i].name, key));
    }
    for (guint i = 0; i < config->settings->len; i++) {
        const struct wb_config_setting *setting = &g_array_index(config->settings, struct wb_config_setting, i);
        g_autofree char *title = wb_quote_text(setting->section);

        if (!g_str_has_prefix(setting->section, "path"))
            continue;
        if (!section || strcmp(setting->section, section) != 0)
            printf("[%s]\n", title);
        section = setting->section;
        print_key(setting->key, setting);
    }
}

/* ---- of one path ----------------------------------------------------------------------------- */

/* Normalizes a path from the top of the tree, as a user wrote it; a slash at its end means a directory. g_free. */
static char *tidy(const char *path, bool *is_directory)
{
    g_autoptr(GString) text = g_string_new(NULL);
    g_auto(GStrv) names = g_strsplit(path, "/", -1);
    size_t count = g_strv_length(names);

    *is_directory = count == 0 || *names[count - 1] == '\0';
    for (char **name = names; *name; name++) {
        if (**name == '\0' || strcmp(*name, ".") == 0)
            continue;
        g_string_append_printf(text, "%s%s", text->len ? "/" : "", *name);
    }
    return g_string_free(g_steal_pointer(&text), FALSE);
}

static const struct wb_policy_rule *rule_of(const struct wb_policy *policy, const char *path)
{
    bool is_directory;
    g_autofree char *tidied = tidy(path, &is_directory);

    return wb_policy_find(policy, tidied, is_directory);
}

static const struct wb_path_rule *compaction_of(const struct wb_compaction *compaction, const char *path)
{
    bool is_directory;
    g_autofree char *tidied = tidy(path, &is_directory);

    return wb_path_rules_find(compaction->rules, tidied, is_directory);
}

static const struct wb_path_rule *recording_of(const struct wb_recording_rules *rules, const char *path)
{
    bool is_directory;
    g_autofree char *tidied = tidy(path, &is_directory);

    return wb_recording_rules_find(rules, tidied, is_directory);
}

static void print_recording_of(const struct wb_recording_rules *rules, const char *path)
{
    const struct wb_path_rule *rule = recording_of(rules, path);

    if (rule)
        printf("%s: history = %s ([%s], line %u)\n", path, wb_recording_name(rule->setting), rule->title, rule->line);
}

static void print_path(const struct wb_config *config, const char *path)
{
    const struct wb_path_rule *packs = compaction_of(&config->compaction, path);

    print_recording_of(&config->recording, path);
    print_rule(path, rule_of(&config->policy, path));
    if (packs)
        printf("%s: compact = %s ([%s], line %u)\n", path, wb_compact_mode_name(packs->setting), packs->title,
               packs->line);
}

/* ---- the same, for programs ------------------------------------------------------------------ */

/* By hand: of the libraries that write JSON, the one we know brings GObject and GIO into the daemon. */
static void print_json_string(const char *bytes)
{
    g_autofree char *valid = g_utf8_make_valid(bytes, -1);
    g_autoptr(GString) text = g_string_new("\"");
    g_autofree char *quoted = NULL;

    for (const char *at = valid; *at; at++) {
        if (*at == '"' || *at == '\\')
            g_string_append_printf(text, "\\%c", *at);
        else if ((unsigned char)*at < ' ')
            g_string_append_printf(text, "\\u%04x", (unsigned char)*at);
        else
            g_string_append_c(text, *at);
    }
    g_string_append_c(text, '"');
    quoted = wb_quote_json(text->str);
    fputs(quoted, stdout);
}

/* A member of the bytes of a user; docs/json.md describes what stands for those that are not UTF-8. */
static void print_json_bytes(const char *key, const char *bytes)
{
    g_autofree char *text = g_base64_encode((const guchar *)bytes, strlen(bytes));

    printf("\"%s\": ", key);
    print_json_string(bytes);
    if (!g_utf8_validate(bytes, -1, NULL))
        printf(", \"%s_bytes\": \"%s\"", key, text);
}

static void print_json_value(const char *value)
{
    if (value)
        print_json_string(value);
    else
        printf("null");
}

static void print_json_strings(const GPtrArray *strings)
{
    for (guint i = 0; i < strings->len; i++) {
        printf(i ? ", " : "");
        print_json_string(g_ptr_array_index(strings, i));
    }
}

static void print_json_span(const char *key, int64_t span)
{
    if (span == WB_FOREVER)
        printf("\"%s\": \"forever\"", key);
    else
        printf("\"%s\": %" PRId64, key, span / WB_WHEN_SECOND);
}

static void print_json_rule(const struct wb_policy_rule *rule)
{
    const struct wb_retention *retention = &rule->retention;

    printf("\"section\": ");
    print_json_string(rule->title ? rule->title : "history");
    if (rule->title)
        printf(", \"line\": %u", rule->line);
    if (retention->keep) {
        printf(", ");
        print_json_span("keep", retention->keep);
    }
    for (unsigned i = 0; i < retention->thin_count; i++) {
        printf(i ? ", {" : ", \"thin\": [{");
        print_json_span("step", retention->thin[i].step);
        printf(", ");
        print_json_span("span", retention->thin[i].span);
        printf(i + 1 == retention->thin_count ? "}]" : "}");
    }
    if (retention->least)
        printf(", \"min_versions\": %" PRIu32, retention->least);
    if (retention->most)
        printf(", \"max_versions\": %" PRIu32, retention->most);
}

static void print_json_snapshots(const struct wb_schedule *schedule)
{
    const char *comma = "";

    printf(", \"snapshots\": {");
    for (enum wb_period period = 0; period < WB_PERIODS; period++) {
        if (!schedule->periods[period].set)
            continue;
        printf("%s\"%s\": %u", comma, wb_period_name(period), schedule->periods[period].keep);
        if (period == WB_EVERY)
            printf(", \"every_seconds\": %u", schedule->every);
        comma = ", ";
    }
    printf("%s\"at\": \"%02u:%02u\"}", comma, schedule->at / 60, schedule->at % 60);
}

static void print_json_room(const char *key, const struct wb_room *room)
{
    if (room->percent)
        printf(", \"%s_percent\": %u", key, room->percent);
    else if (room->bytes)
        printf(", \"%s_bytes\": %" PRIu64, key, room->bytes);
    if (room->hard)
        printf(", \"%s_hard\": true", key);
}

static void print_json_policy(const struct wb_policy *policy)
{
    printf(", \"forgetting\": {\"rules\": [{");
    print_json_rule(&policy->everything);
    for (guint i = 0; policy->rules && i < policy->rules->len; i++) {
        printf("}, {");
        print_json_rule(g_ptr_array_index(policy->rules, i));
    }
    printf("}], ");
    print_json_span("reach", wb_policy_reach(policy));
    print_json_room("max_size", &policy->max_size);
    print_json_room("reserve", &policy->reserve);
    print_json_room("user_max_size", &policy->user_max);
    printf("}");
}

static void print_json_compaction(const struct wb_compaction *compaction)
{
    printf(", \"compact\": \"%s\", \"compact_after\": %u, \"compact_rules\": [",
           wb_compact_mode_name(compaction->mode), compaction->rest);
    for (guint i = 0; compaction->rules && i < compaction->rules->len; i++) {
        const struct wb_path_rule *rule = g_ptr_array_index(compaction->rules, i);

        printf(i ? ", {\"section\": " : "{\"section\": ");
        print_json_string(rule->title);
        printf(", \"line\": %u, \"compact\": \"%s\"}", rule->line, wb_compact_mode_name(rule->setting));
    }
    printf("]");
}

static void print_json_recording(const struct wb_recording_rules *rules)
{
    printf(", \"recording_rules\": [");
    for (guint i = 0; rules->list && i < rules->list->len; i++) {
        const struct wb_path_rule *rule = g_ptr_array_index(rules->list, i);

        printf(i ? ", {\"section\": " : "{\"section\": ");
        print_json_string(rule->title);
        printf(", \"line\": %u, \"history\": \"%s\"}", rule->line, wb_recording_name(rule->setting));
    }
    printf("]");
}

static void print_json_key(const char *section, const struct wb_config_key *key,
                           const struct wb_config_setting *setting)
{
    printf("{\"section\": ");
    print_json_string(section);
    printf(", \"key\": \"%s\", \"value\": ", key->name);
    print_json_value(setting ? setting->value : key->initial);
    printf(", \"default\": ");
    print_json_value(key->initial);
    if (setting)
        printf(", \"line\": %u", setting->line);
    printf("}");
}

static void print_json_keys(const struct wb_config *config)
{
    const char *comma = "";

    printf(", \"keys\": [");
    for (size_t i = 0; i < G_N_ELEMENTS(sections); i++) {
        for (const struct wb_config_key *key = wb_config_keys; key->name; key++) {
            if (!(key->sections & sections[i].in))
                continue;
            fputs(comma, stdout);
            print_json_key(sections[i].name, key, setting_of(config, sections[i].name, key));
            comma = ", ";
        }
    }
    for (guint i = 0; i < config->settings->len; i++) {
        const struct wb_config_setting *setting = &g_array_index(config->settings, struct wb_config_setting, i);

        if (!g_str_has_prefix(setting->section, "path"))
            continue;
        printf(", ");
        print_json_key(setting->section, setting->key, setting);
    }
    printf("]");
}

static void print_json(const char *path, const struct wb_config *config, char **paths)
{
    const struct wb_path_rule *recording;
    const struct wb_path_rule *packs;

    printf("{\"schema\": %d, ", WB_JSON_SCHEMA);
    print_json_bytes("file", path);
    printf(", \"mistakes\": []");
    print_json_snapshots(&config->snapshots);
    print_json_recording(&config->recording);
    print_json_compaction(&config->compaction);
    print_json_policy(&config->policy);
    printf(", \"commands\": \"%s\"", wb_commands_name(config->commands));
    printf(", \"user_snapshots\": %u", config->user_snapshots);
    print_json_keys(config);
    printf(", \"paths\": [");
    for (char **at = paths; at && *at; at++) {
        printf(at > paths ? ", {" : "{");
        print_json_bytes("path", *at);
        printf(", ");
        print_json_rule(rule_of(&config->policy, *at));
        packs = compaction_of(&config->compaction, *at);
        recording = recording_of(&config->recording, *at);
        if (recording)
            printf(", \"history\": \"%s\"", wb_recording_name(recording->setting));
        printf(", \"compact\": \"%s\"}", wb_compact_mode_name(packs ? packs->setting : config->compaction.mode));
    }
    printf("]}\n");
}

/* ---- the command line ------------------------------------------------------------------------ */

static void hold_mistake(const char *line, void *data)
{
    g_ptr_array_add(data, g_strdup(line));
}

/* `path` may be NULL. */
static void print_json_error(const char *kind, const char *path, const char *message)
{
    printf("{\"kind\": \"%s\", ", kind);
    if (path) {
        print_json_bytes("path", path);
        printf(", ");
    }
    printf("\"message\": ");
    print_json_string(message);
    printf(", \"problem\": ");
    print_json_string(message);
    printf("}");
}

/* Each mistake is an error, too, as with any tool that fails. */
static void print_json_mistakes(const char *path, const GPtrArray *mistakes)
{
    printf("{\"schema\": %d, ", WB_JSON_SCHEMA);
    print_json_bytes("file", path);
    printf(", \"mistakes\": [");
    print_json_strings(mistakes);
    printf("], \"error\": ");
    print_json_error("failed", path, mistakes->len > 0 ? g_ptr_array_index(mistakes, 0) : "it cannot be read");
    for (guint i = 0; mistakes->len > 1 && i < mistakes->len; i++) {
        printf(i > 0 ? ", " : ", \"errors\": [");
        print_json_error("failed", path, g_ptr_array_index(mistakes, i));
    }
    printf(mistakes->len > 1 ? "]}\n" : "}\n");
}

void wb_config_check_refuse(const char *message)
{
    printf("{\"schema\": %d, \"error\": ", WB_JSON_SCHEMA);
    print_json_error("usage", NULL, message);
    printf("}\n");
}

static int print_mistakes(const struct wb_options *options, const char *path, const GPtrArray *mistakes)
{
    if (options->json) {
        print_json_mistakes(path, mistakes);
        return EXIT_FAILED;
    }
    for (guint i = 0; i < mistakes->len; i++) {
        g_autofree char *line = wb_quote_text(g_ptr_array_index(mistakes, i));

        fprintf(stderr, "%s\n", line);
    }
    return EXIT_FAILED;
}

static void print_text(const char *path, const struct wb_config *config, char **paths)
{
    if (!paths || !*paths) {
        printf("%s: no mistake\n", path);
        print_snapshots(&config->snapshots);
        print_recording(&config->recording);
        print_compaction(&config->compaction);
        print_policy(&config->policy);
        print_keys(config);
        return;
    }
    for (char **at = paths; *at; at++)
        print_path(config, *at);
}

int wb_config_check(const struct wb_options *options)
{
    g_autofree char *path = find(options, false);
    g_autofree char *shown = path ? lasting_path(options, path) : NULL;
    g_autoptr(GPtrArray) mistakes = g_ptr_array_new_with_free_func(g_free);
    struct wb_config config;
    int r;

    if (!path)
        return EXIT_FAILED;
    r = wb_config_file_read(AT_FDCWD, path, shown, &config, hold_mistake, mistakes);
    if (r == -ENOENT)
        g_ptr_array_add(mistakes, g_strdup_printf("wayback: %s: no such file, so nothing is set", shown));
    if (r < 0)
        r = print_mistakes(options, shown, mistakes);
    else if (options->json)
        print_json(shown, &config, options->paths);
    else
        print_text(shown, &config, options->paths);
    wb_config_deinit(&config);
    return r == 0 ? EXIT_DONE : EXIT_FAILED;
}

int wb_config_path(const struct wb_options *options)
{
    g_autofree char *path = find(options, true);

    if (!path)
        return EXIT_FAILED;
    printf("%s\n", path);
    return EXIT_DONE;
}

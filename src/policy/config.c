/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "policy/config.h"

#include "time/quantity.h"
#include "wayback/when.h"
#include <errno.h>
#include <glib.h>
#include <stdlib.h>
#include <string.h>

struct wb_config_parser {
    struct wb_config *config;
    wb_config_complain complain;
    void *data;
    bool failed;
    GHashTable *seen;            /* "section\nkey": the line */
    const struct wb_config_key *key; /* whose value is being read */
    struct wb_policy_rule *rule; /* of the section with patterns that we are in, or NULL: it could not be read */
    struct {
        unsigned line, column;
    } max_size, reserve;
};

#define WB_COMPLAIN(parser, line, column, ...) \
    wb_config_complain_of(config_parser_complain, (parser), (line), (column), __VA_ARGS__)

/* Added to a message if the value contains a comment. */
#define WB_COMMENT_HINT " (a comment takes a line of its own)"

/* The part of wayback.conf that says what may be forgotten: [path ...], and keys of [history]. */

#define WB_SPAN_YEARS 100
#define WB_SPAN_MAX (WB_SPAN_YEARS * INT64_C(365) * 86400)

/* ---- [path "PATTERN" ...] -------------------------------------------------------------------- */

static void config_parser_complain(const struct wb_config_mistake *mistake, void *data);
static int64_t config_number(const char *text, size_t length, int64_t most);
static int64_t config_duration(const char *text);

static bool config_is_path_section(const char *section)
{
    return g_str_has_prefix(section, "path") && strchr(" \t\"", section[4]);
}

static unsigned column_at(const struct wb_config_line *line, const char *at)
{
    return line->column + (unsigned)g_utf8_strlen(line->section, at - line->section);
}

/* The quote that ends the pattern; one behind a backslash belongs to it, and the backslash, too: to the pattern it
 * means the quote itself, so that nothing needs to be escaped twice. */
static const char *end_of_pattern(const char *at)
{
    for (; *at && *at != '"'; at++)
        if (*at == '\\' && at[1])
            at++;
    return *at ? at : NULL;
}

static void complain_form(struct wb_config_parser *parser, const struct wb_config_line *line, const char *at)
{
    WB_COMPLAIN(parser, line->number, column_at(line, at),
                "[%s]: patterns in quotes must follow, e.g. [path \"*.o\"] or [path \"*.log\" \"!audit.log\"]",
                line->section);
}

/* 1: one was read, 0: there are no more, -1: a mistake, which was reported. */
static int take_pattern(struct wb_config_parser *parser, const struct wb_config_line *line, const char **at,
                        struct wb_patterns *patterns)
{
    struct wb_pattern_mistake why;
    g_autofree char *pattern = NULL;
    const char *end;

    *at += strspn(*at, " \t");
    if (**at == '\0')
        return 0;
    end = **at == '"' ? end_of_pattern(*at + 1) : NULL;
    if (!end) {
        complain_form(parser, line, *at);
        return -1;
    }
    pattern = g_strndup(*at + 1, (size_t)(end - *at - 1));
    if (wb_patterns_add(patterns, pattern, &why) < 0) {
        WB_COMPLAIN(parser, line->number, column_at(line, *at + 1 + why.at), "\"%s\" is an invalid pattern: %s",
                    pattern, why.reason);
        return -1;
    }
    *at = end + 1;
    return 1;
}

/* A section [path "PATTERN"...] begins. */
static void config_take_path(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    const char *at = line->section + strlen("path");
    unsigned before = GPOINTER_TO_UINT(g_hash_table_lookup(parser->seen, line->section));
    int count = 0, r;

    parser->rule = NULL;
    if (before) {
        WB_COMPLAIN(parser, line->number, line->column, "[%s]: already in line %u; put all keys there",
                    line->section, before);
        return;
    }
    g_hash_table_insert(parser->seen, g_strdup(line->section), GUINT_TO_POINTER(line->number));
    parser->rule = wb_policy_add(&parser->config->policy, line->section, line->number);
    while ((r = take_pattern(parser, line, &at, parser->rule->patterns)) > 0)
        count++;
    if (r == 0 && count == 0)
        complain_form(parser, line, line->section);
}

/* Reports that the key does not allow the value. */
static void invalid(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    const struct wb_config_key *key = parser->key;
    g_autofree char *example = key->example ? g_strdup_printf(", e.g. %s = %s", key->name, key->example) : g_strdup("");

    WB_COMPLAIN(parser, line->number, line->value_column, "%s = %s: invalid; use %s%s%s", key->name, line->value,
                key->allowed, example, strchr(line->value, '#') ? WB_COMMENT_HINT : "");
}

/* Those of a section that was read without a mistake, once more. */
static struct wb_patterns *patterns_of(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    struct wb_patterns *patterns = wb_patterns_new();
    const char *at = line->section + strlen("path");

    while (take_pattern(parser, line, &at, patterns) > 0)
        ;
    return patterns;
}

/* history, of a section with patterns. */
static void take_history(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    enum wb_recording recording = wb_recording_find(line->value);

    if (recording == WB_RECORDINGS)
        invalid(parser, line);
    else
        wb_path_rules_add(&parser->config->recording.list, line->section, parser->rule->line,
                          patterns_of(parser, line), recording);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* In ns; -1: none, or too long. */
static int64_t span(const char *text)
{
    int64_t seconds = config_duration(text);

    return seconds >= 1 && seconds <= WB_SPAN_MAX ? seconds * WB_WHEN_SECOND : -1;
}

/* One STEP:SPAN. False: it was complained of. */
static bool take_step(struct wb_config_parser *parser, struct wb_retention *retention,
                      const struct wb_config_line *line, const char *word, unsigned column)
{
    g_auto(GStrv) parts = g_strsplit(word, ":", 2);
    int64_t step = span(parts[0]), length = parts[1] ? span(parts[1]) : -1;
    unsigned count = retention->thin_count;
    const char *why = NULL;

    if (step < 0 || length < 0)
        why = "each is STEP:SPAN, e.g. 1h:2d for one version per hour for two days";
    else if (step > length)
        why = "the step is longer than the span";
    else if (count && step <= retention->thin[count - 1].step)
        why = "the steps must grow, e.g. thin = 1h:2d 1d:30d 1w:1y";
    else if (count && length <= retention->thin[count - 1].span)
        why = "the spans must grow, e.g. thin = 1h:2d 1d:30d 1w:1y";
    else if (count == WB_THIN_MAX)
        why = "there are more than 16 steps";
    if (why) {
        WB_COMPLAIN(parser, line->number, column, "thin: %s: %s%s", word, why,
                    strchr(line->value, '#') ? WB_COMMENT_HINT : "");
        return false;
    }
    retention->thin[count].step = step;
    retention->thin[count].span = length;
    retention->thin_count++;
    return true;
}

static void take_steps(struct wb_config_parser *parser, struct wb_retention *retention,
                      const struct wb_config_line *line)
{
    const char *at = line->value;

    retention->aged = true;
    if (*at == '\0')
        WB_COMPLAIN(parser, line->number, line->value_column,
                    "thin = : each is STEP:SPAN, e.g. thin = 1h:2d 1d:30d 1w:1y");
    while (*at) {
        size_t length = strcspn(at, " \t");
        g_autofree char *word = g_strndup(at, length);
        unsigned column = line->value_column + (unsigned)g_utf8_strlen(line->value, at - line->value);

        if (!take_step(parser, retention, line, word, column))
            return;
        at += length;
        at += strspn(at, " \t");
    }
}

static void take_versions(struct wb_config_parser *parser, struct wb_retention *retention,
                          const struct wb_config_line *line)
{
    const char *dots = strstr(line->value, "..");
    size_t length = dots ? (size_t)(dots - line->value) : 0;
    int64_t least = 0, most = 0;

    if (dots && length > 0)
        least = config_number(line->value, length, WB_VERSIONS_MAX);
    if (dots && dots[2] != '\0')
        most = config_number(dots + 2, strlen(dots + 2), WB_VERSIONS_MAX);
    if (!dots || least < 0 || most < 0 || (length > 0 && least == 0) || (dots[2] != '\0' && most == 0) ||
        (length == 0 && dots[2] == '\0'))
        invalid(parser, line);
    else if (most && least > most)
        WB_COMPLAIN(parser, line->number, line->value_column,
                    "keep-versions = %s: MIN is greater than MAX; use MIN..MAX, e.g. keep-versions = 5..100",
                    line->value);
    else {
        retention->least = (uint32_t)least;
        retention->most = (uint32_t)most;
    }
}

static void said(struct wb_policy_rule *rule, enum wb_retention_key key, const struct wb_config_line *line)
{
    rule->said[key].line = line->number;
    rule->said[key].column = line->column;
}

/* What the line sets the rule of: a section with patterns, or everything. */
static struct wb_policy_rule *rule_of(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    return config_is_path_section(line->section) ? parser->rule : &parser->config->policy.everything;
}

static void take_keep(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    struct wb_policy_rule *rule = rule_of(parser, line);
    int64_t keep = strcmp(line->value, "forever") == 0 ? WB_FOREVER : span(line->value);

    said(rule, WB_RETENTION_KEEP, line);
    rule->retention.aged = true;
    if (keep < 0)
        invalid(parser, line);
    else
        rule->retention.keep = keep;
}

static void take_thin(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    struct wb_policy_rule *rule = rule_of(parser, line);

    said(rule, WB_RETENTION_THIN, line);
    take_steps(parser, &rule->retention, line);
}

static void take_keep_versions(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    struct wb_policy_rule *rule = rule_of(parser, line);

    said(rule, WB_RETENTION_VERSIONS, line);
    take_versions(parser, &rule->retention, line);
}

/* ---- room ------------------------------------------------------------------------------------ */

static bool parse_room(const char *text, struct wb_room *ret)
{
    size_t digits = strspn(text, "0123456789");
    const char *unit = text + digits + strspn(text + digits, " ");

    if (strcmp(unit, "%") == 0) {
        int64_t value = config_number(text, digits, 99);

        ret->percent = (unsigned)MAX(value, 0);
        return value >= 1;
    }
    return wb_size_parse(text, &ret->bytes) == 0;
}

static void take_room(struct wb_config_parser *parser, const struct wb_config_line *line, struct wb_room *room)
{
    if (!parse_room(line->value, room))
        invalid(parser, line);
}

static void take_max_size(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    struct wb_room *room = &parser->config->policy.max_size;
    g_autofree char *size = g_strdup(line->value);

    /* Any other word is left to the size, which it does not belong to. */
    room->hard = g_str_has_suffix(size, " hard") || g_str_has_suffix(size, "\thard");
    if (room->hard)
        size[strlen(size) - strlen(" hard")] = '\0';
    if (!parse_room(g_strchomp(size), room))
        invalid(parser, line);
    parser->max_size.line = line->number;
    parser->max_size.column = line->column;
}

static void take_user_max_size(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    take_room(parser, line, &parser->config->policy.user_max);
}

static void take_reserve(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    take_room(parser, line, &parser->config->policy.reserve);
    parser->reserve.line = line->number;
    parser->reserve.column = line->column;
}

/* ---- contradictions -------------------------------------------------------------------------- */

#define COMPLAIN_KEY(parser, rule, key, ...) \
    WB_COMPLAIN(parser, (rule)->said[key].line, (rule)->said[key].column, __VA_ARGS__)

static void check_rule(struct wb_config_parser *parser, const struct wb_policy_rule *rule)
{
    const struct wb_retention *retention = &rule->retention;
    int64_t last = retention->thin_count ? retention->thin[retention->thin_count - 1].span : 0;
    g_autofree char *last_text = wb_span_print(last);
    bool versions = retention->least || retention->most;

    if (last && retention->keep >= last)
        COMPLAIN_KEY(parser, rule, WB_RETENTION_KEEP, "keep: thin has no effect, because it ends after %s; use a "
                     "longer thin, or a shorter keep", last_text);
    else if (versions && retention->keep == WB_FOREVER)
        COMPLAIN_KEY(parser, rule, WB_RETENTION_VERSIONS, "keep-versions has no effect with keep = forever");
    else if (versions && retention->most && retention->keep && !last)
        COMPLAIN_KEY(parser, rule, WB_RETENTION_VERSIONS, "keep-versions: a maximum has no effect with keep alone, "
                     "which keeps young versions and no others; use thin = STEP:SPAN instead of keep, or only MIN..");
    else if (versions && !retention->most && !retention->aged)
        COMPLAIN_KEY(parser, rule, WB_RETENTION_VERSIONS, "keep-versions: a minimum has no effect because all versions "
                     "are kept; set keep or thin as well, or a maximum");
    else if (rule->patterns && !versions && !retention->aged)
        WB_COMPLAIN(parser, rule->line, 1, "[%s]: empty; set keep, thin, keep-versions (keep = forever keeps all), "
                    "compact or history", rule->title);
}

/* Removes the rule of the section in that line, if it sets no retention. */
static void part_rule(GPtrArray *rules, unsigned line)
{
    for (guint i = rules->len; i-- > 0;) {
        const struct wb_policy_rule *rule = g_ptr_array_index(rules, i);

        if (rule->line == line && !rule->retention.aged && !rule->retention.least && !rule->retention.most)
            g_ptr_array_remove_index(rules, i);
    }
}

/* Sections that set only recording or packing set no retention: the sections before them apply. */
static void part_others(struct wb_config *config)
{
    const GPtrArray *packs = config->compaction.rules, *recordings = config->recording.list;
    GPtrArray *rules = config->policy.rules;

    for (guint i = 0; packs && i < packs->len; i++)
        part_rule(rules, ((const struct wb_path_rule *)g_ptr_array_index(packs, i))->line);
    for (guint i = 0; recordings && i < recordings->len; i++)
        part_rule(rules, ((const struct wb_path_rule *)g_ptr_array_index(recordings, i))->line);
    if (rules && rules->len == 0)
        g_clear_pointer(&config->policy.rules, g_ptr_array_unref);
}

/* When all was read: what contradicts itself. */
static void config_check_policy(struct wb_config_parser *parser)
{
    const struct wb_policy *policy = &parser->config->policy;

    /* What could not be read would be complained of a second time, for other reasons. */
    if (parser->failed)
        return;
    part_others(parser->config);
    check_rule(parser, &policy->everything);
    for (guint i = 0; policy->rules && i < policy->rules->len; i++)
        check_rule(parser, g_ptr_array_index(policy->rules, i));
    if (policy->max_size.percent + policy->reserve.percent > 100)
        WB_COMPLAIN(parser, MAX(parser->max_size.line, parser->reserve.line),
                    parser->max_size.line > parser->reserve.line ? parser->max_size.column : parser->reserve.column,
                    "max-size = %u%% and reserve = %u%%: together more than 100%%", policy->max_size.percent,
                    policy->reserve.percent);
}

static const char *const period_names[WB_PERIODS] = {"every", "hourly", "daily", "weekly", "monthly"};

static const char *const commands_names[] = {
    [WB_COMMANDS_FULL] = "full", [WB_COMMANDS_NAME] = "name", [WB_COMMANDS_NONE] = "none"};

const char *wb_commands_name(enum wb_commands commands)
{
    return commands_names[commands];
}

const char *wb_period_name(enum wb_period period)
{
    return period_names[period];
}

void wb_config_deinit(struct wb_config *config)
{
    g_clear_pointer(&config->settings, g_array_unref);
    wb_compaction_deinit(&config->compaction);
    wb_recording_rules_deinit(&config->recording);
    wb_policy_deinit(&config->policy);
}

/* ---- mistakes -------------------------------------------------------------------------------- */

/* A wb_config_complain; `data` is the parser. */
static void config_parser_complain(const struct wb_config_mistake *mistake, void *data)
{
    struct wb_config_parser *parser = data;

    parser->failed = true;
    parser->complain(mistake, parser->data);
}

#define COMPLAIN(parser, line, column, ...) WB_COMPLAIN(parser, (line)->number, column, __VA_ARGS__)

/* How many letters must be changed, added or left out (Levenshtein). */
static size_t distance(const char *a, const char *b)
{
    size_t length = strlen(b);
    g_autofree size_t *row = g_new(size_t, length + 1);

    for (size_t j = 0; j <= length; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];

        row[0] = i + 1;
        for (size_t j = 0; j < length; j++) {
            size_t same = diagonal + (g_ascii_tolower(a[i]) != g_ascii_tolower(b[j]));

            diagonal = row[j + 1];
            row[j + 1] = MIN(same, MIN(row[j], row[j + 1]) + 1);
        }
    }
    return row[length];
}

/* The known word that was probably meant, or NULL. */
static const char *nearest(const char *word, const char *const *known)
{
    const char *best = NULL;
    size_t least = 0;

    /* Nobody mistypes that much, and it takes the square of it. */
    if (strlen(word) > 64)
        return NULL;
    for (; *known; known++) {
        size_t far = distance(word, *known);

        if (far < strlen(*known) && far <= 3 && (!best || far < least)) {
            best = *known;
            least = far;
        }
    }
    return best;
}

static void config_unknown(struct wb_config_parser *parser, const struct wb_config_line *line, const char *what,
                           const char *word, const char *const *known)
{
    g_autofree char *all = g_strjoinv(", ", (char **)known);
    const char *meant = nearest(word, known);

    if (meant)
        COMPLAIN(parser, line, line->column, "%s: no such %s; did you mean %s?", word, what, meant);
    else
        COMPLAIN(parser, line, line->column, "%s: no such %s; use %s%s", word, what, known[1] ? "one of " : "", all);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Digits and nothing else. -1: no number, or one above `most`. */
static int64_t config_number(const char *text, size_t length, int64_t most)
{
    int64_t value = 0;

    for (size_t i = 0; i < length; i++) {
        if (!g_ascii_isdigit(text[i]))
            return -1;
        value = value * 10 + (text[i] - '0');
        if (value > most)
            return -1;
    }
    return length > 0 ? value : -1;
}

/* How many snapshots of a period to keep; the key is its name. */
static void take_period(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    enum wb_period period = WB_HOURLY;
    int64_t keep = config_number(line->value, strlen(line->value), WB_KEEP_MAX);

    if (keep < 0)
        invalid(parser, line);
    while (strcmp(line->key, period_names[period]) != 0)
        period++;
    parser->config->snapshots.periods[period].set = true;
    parser->config->snapshots.periods[period].keep = (unsigned)MAX(keep, 0);
}

static void take_user_snapshots(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    int64_t count = config_number(line->value, strlen(line->value), WB_KEEP_MAX);

    if (count < 0)
        invalid(parser, line);
    parser->config->user_snapshots = (unsigned)MAX(count, 0);
}

/* In whole seconds; -1: none. */
static int64_t config_duration(const char *text)
{
    int64_t span;

    return wb_span_parse(text, &span) == 0 && span % WB_WHEN_SECOND == 0 ? span / WB_WHEN_SECOND : -1;
}

static void take_every(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    struct wb_schedule *schedule = &parser->config->snapshots;
    const char *colon = strchr(line->value, ':');
    g_autofree char *period = colon ? g_strndup(line->value, (size_t)(colon - line->value)) : NULL;
    int64_t seconds = period ? config_duration(g_strstrip(period)) : -1, keep = -1;

    if (colon) {
        const char *count = colon + 1 + strspn(colon + 1, " \t");

        keep = config_number(count, strlen(count), WB_KEEP_MAX);
    }
    if (seconds < 1 || seconds > WB_EVERY_MAX || keep < 0)
        invalid(parser, line);
    schedule->every = seconds >= 1 && seconds <= WB_EVERY_MAX ? (unsigned)seconds : 1;
    schedule->periods[WB_EVERY].set = true;
    schedule->periods[WB_EVERY].keep = (unsigned)MAX(keep, 0);
}

static void take_at(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    const char *text = line->value;
    size_t digits = strspn(text, "0123456789");
    int64_t hour = digits <= 2 ? config_number(text, digits, 23) : -1, minute = -1;

    if (text[digits] == ':' && strlen(text + digits + 1) == 2)
        minute = config_number(text + digits + 1, 2, 59);
    if (hour < 0 || minute < 0)
        invalid(parser, line);
    else
        parser->config->snapshots.at = (unsigned)(hour * 60 + minute);
}

static void take_compact(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    enum wb_compact_mode mode = wb_compact_mode_find(line->value);

    if (mode == WB_MODES)
        invalid(parser, line);
    else if (config_is_path_section(line->section))
        wb_path_rules_add(&parser->config->compaction.rules, line->section, parser->rule->line,
                          patterns_of(parser, line), mode);
    else
        parser->config->compaction.mode = mode;
}

static void take_compact_after(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    int64_t seconds = config_duration(line->value);

    if (seconds < 1 || seconds > WB_REST_MAX)
        invalid(parser, line);
    else
        parser->config->compaction.rest = (unsigned)seconds;
}

static void take_commands(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(commands_names); i++) {
        if (strcmp(line->value, commands_names[i]) == 0) {
            parser->config->commands = (enum wb_commands)i;
            return;
        }
    }
    /* Until it is corrected, nothing is recorded that this line may have been meant to keep secret. */
    parser->config->commands = WB_COMMANDS_NONE;
    invalid(parser, line);
}

/* ---- keys ------------------------------------------------------------------------------------ */

#define COUNT .syntax = "COUNT", .allowed = "a number from 0 to " G_STRINGIFY(WB_KEEP_MAX)
#define SIZE .syntax = "SIZE", .allowed = "a number of bytes (K, M, G, T; KB, MB, ... for powers of 1000) or a share " \
    "of the device from 1% to 99%"

const struct wb_config_key wb_config_keys[] = {
    {"hourly", WB_IN_SNAPSHOTS, take_period, COUNT, .example = "24",
     .help = "A snapshot at each full hour; the newest COUNT are kept, from 0 to 10000.",
     .sample = "# Every state can be read without them (`file@14:03`): snapshots are named times, listed by\n"
               "# `vsnap list` and in `.snapshot`. How many of each kind to keep:\n"
               "#hourly = 24\n"},
    {"daily", WB_IN_SNAPSHOTS, take_period, COUNT, .example = "24",
     .help = "A snapshot each day, at the time set by *at*.", .sample = "#daily = 7\n"},
    {"weekly", WB_IN_SNAPSHOTS, take_period, COUNT, .example = "24",
     .help = "A snapshot each Monday, at the time set by *at*.", .sample = "#weekly = 4\n"},
    {"monthly", WB_IN_SNAPSHOTS, take_period, COUNT, .example = "24",
     .help = "A snapshot on the first of each month, at the time set by *at*.", .sample = "#monthly = 12\n"},
    {"at", WB_IN_SNAPSHOTS, take_at, .syntax = "HH:MM", .allowed = "a time of day from 00:00 to 23:59",
     .initial = "00:00", .example = "03:30",
     .help = "The time of day of daily, weekly and monthly snapshots, local time.",
     .manual = "If the clocks are set back and the time occurs twice, the first one counts; if they skip it, the "
               "snapshot is created later by the same amount.",
     .sample = "# The time of day of the daily, weekly (Monday) and monthly (the 1st) ones:\n"
               "#at = 00:00\n"},
    {"every", WB_IN_SNAPSHOTS, take_every, .syntax = "INTERVAL:COUNT", .example = "10m:36",
     .allowed = "an interval from 1s to 24h and the number to keep (at most " G_STRINGIFY(WB_KEEP_MAX) ")",
     .help = "A snapshot in each INTERVAL, counted from midnight, from *1s* to *24h*: *10m:36*, *1h30m:8*.",
     .sample = "# Snapshots at any other interval, here every ten minutes, and how many of them to keep:\n"
               "#every = 10m:36\n"},
    {"user-snapshots", WB_IN_SNAPSHOTS, take_user_snapshots, COUNT, .initial = "1024", .example = "100",
     .help = "The number of snapshots that each ordinary user may have, from 0 to 10000.",
     .manual = "It does not apply to root and the user who mounted. Existing snapshots are not deleted.",
     .sample = "# How many snapshots each ordinary user may create of their own directories:\n"
               "#user-snapshots = 1024\n"},
    {"compact", WB_IN_HISTORY | WB_IN_PATH, take_compact, .syntax = "none | zstd | delta | delta+zstd",
     .allowed = "none, zstd, delta or delta+zstd", .initial = "delta+zstd",
     .help = "How the daemon packs history that has not changed for *compact-after*.",
     .manual = "It is packed if that saves a tenth of its bytes and at least 4 KiB. This key may be in sections with "
               "patterns, too (below): the last one that matches and sets it counts, else the value here.\n"
               "delta+zstd\tThe smallest result: deleted and replaced files are stored as differences from the newest "
               "one of the same name, which is compressed; records of changes are compressed.\n"
               "delta\tThe same, but the newest one is not compressed, so it is read without unpacking.\n"
               "zstd\tDeleted and replaced files are compressed, but not stored as differences: the result is larger, "
               "but a reader has to unpack only half as much.\n"
               "none\tThe daemon packs nothing; packed history is not unpacked.\n"
               "Records of changes to a file in place are packed unless *none* is set for the name through which the "
               "file was changed last. For a removed directory, only the names in it are known, not "
               "its path.",
     .sample = "# Idle history is packed (compressed) in the background. With none, only vcompact packs it.\n"
               "#compact = delta+zstd\n"},
    {"compact-after", WB_IN_HISTORY, take_compact_after, .syntax = "INTERVAL",
     .allowed = "an interval from 1s to 366d", .initial = "5m", .example = "5m",
     .help = "How long history must be unchanged before it is packed, from *1s* to *366d*.",
     .manual = "It is packed some time after that: the daemon scans the whole store in about four times the interval, "
               "or in 43 minutes if that is longer.",
     .sample = "#compact-after = 5m\n"},
    {"keep", WB_IN_HISTORY | WB_IN_PATH, take_keep, .syntax = "AGE",
     .allowed = "an age from 1s to " G_STRINGIFY(WB_SPAN_YEARS) "y, or forever", .example = "30d",
     .help = "Keep every version younger than that: *90s*, *1h30m*, *30 days*, *1y*, up to *100y*.",
     .manual = "A month has 30 days, a year 365. *forever* keeps all.",
     .sample = "# How long replaced versions and deleted files are kept in any case. (If they do not fit, changes\n"
               "# fail as on any full disk; use vrm or vprune then. A snapshot protects everything since it was\n"
               "# created.)\n"
               "keep = 7d\n"},
    {"reserve", WB_IN_HISTORY, take_reserve, SIZE, .example = "10%",
     .help = "The space to keep free on the device of the store.",
     .sample = "# After that they are kept while this much of the device is free; else the oldest are deleted:\n"
               "reserve = 5%\n"},
    {"max-size", WB_IN_HISTORY, take_max_size, .syntax = "SIZE [hard]",
     .allowed = "a number of bytes (K, M, G, T; KB, MB, ... for powers of 1000) or a share of the device from 1% to "
                "99%, and perhaps the word hard after it", .example = "20G",
     .help = "The maximum size of the history on the disk.",
     .manual = "In bytes, with K, M, G, T (powers of 1024; KiB and so on mean the same, KB and so on powers of 1000; "
               "in either case, and *1.5G* as well), or a share of the device, *20%*. Versions that *keep*, *thin* and "
               "*keep-versions* protect are kept even above it. With *hard*, as in *20G hard*, these are deleted as "
               "well when nothing else is left, the oldest first: *keep = 30d* and *max-size = 20G hard* keep 30 days, "
               "and at most 20 GiB.",
     .sample = "# Or while the history uses no more than this (\"200G hard\": no more in any case, whatever keep "
               "says):\n"
               "#max-size = 200G\n"},
    {"user-max-size", WB_IN_HISTORY, take_user_max_size, SIZE, .example = "5G",
     .help = "The maximum size of the history of the changes of each user except root.",
     .manual = "By default there is no limit. See *Users* above.",
     .sample = "# The limit for the history of the changes of each user except root. At the limit, the oldest\n"
               "# of it is deleted, or changes of this user fail:\n"
               "#user-max-size = 20G\n"},
    {"thin", WB_IN_HISTORY | WB_IN_PATH, take_thin, .syntax = "STEP:SPAN ...",
     .help = "Of older versions, keep the last of each STEP for SPAN.",
     .manual = "*thin = 1h:2d 1d:30d 1w:1y* keeps the state at the end of each hour for two days, of each day for "
               "thirty days, of each week for a year. Steps are counted from 1970-01-01 00:00 UTC, so that days end "
               "at midnight UTC and weeks on Thursdays: the result must not depend on the time zone. Steps and spans "
               "must grow, and there is no blank in them: *1day:1month*.",
     .sample = "# Of older versions, keep the last of each hour for a month, and of each day for a year:\n"
               "#thin = 1h:30d 1d:1y\n"},
    {"keep-versions", WB_IN_HISTORY | WB_IN_PATH, take_keep_versions, .syntax = "MIN..MAX",
     .allowed = "MIN..MAX, MIN.. or ..MAX, from 1 to " G_STRINGIFY(WB_VERSIONS_MAX), .example = "5..100",
     .help = "Keep at least the newest MIN versions, including the present one, whatever their age.",
     .manual = "Of those that neither *keep* nor a snapshot protects, keep at most MAX: if there are more, those that "
               "would expire first are deleted first. Either number may be left out."},
    {"commands", WB_IN_HISTORY, take_commands, .syntax = "full | name | none", .allowed = "none, name or full",
     .initial = "full",
     .help = "How much of the command line of a process is recorded with its changes.",
     .manual = "\n"
               "full\tThe program and its arguments, the first 1024 bytes. Root, the user who mounted, and processes "
               "of the same user see all of it; other users see the base name of the program. If the arguments cannot "
               "be read from the memory of the process in time, the kernel's name of the process, in brackets.\n"
               "name\tThe base name of the program, for all users.\n"
               "none\tNothing. User, group and process number are recorded in any case.\n"
               "A new value applies from the next change on. Command lines that were recorded before are not changed; "
               "*vrm*(1) erases the arguments of the commands that made the erased history. After mounting, this line "
               "is used even if another line has a mistake; if this line has a mistake, no command line is recorded.",
     .sample = "\n"
               "# Changes are recorded with the command line. Root, the user who mounted and the same user see its\n"
               "# arguments, others only the name of the program. Record only that name (name), or nothing (none):\n"
               "#commands = full\n"},
    {"history", WB_IN_PATH, take_history, .syntax = "write | close | none",
     .allowed = "write (record every change), close (record content at each close) or none",
     .help = "Which changes of these paths are recorded.",
     .manual = "This key may be in these sections only; for all other paths the option *history* of the mount "
               "applies. Of all matching sections with this key, the last one counts, but everything in a directory "
               "that is excluded (*none*) is excluded as well.\n"
               "write\tEvery change.\n"
               "close\tContent from one *close*(2) to the next, as with *-o history=close*. With *onfull=continue* it "
               "means write.\n"
               "none\tNothing. States of that time are refused (EIO), never shown as empty or as the present state; "
               "so is the list of an excluded directory, while its parent directory still shows its name. Earlier "
               "states remain exact: before the first change that is not recorded, the file is recorded once. "
               "*vstat*(1) shows a gap for the time without records. A file that was created in an excluded directory "
               "is removed permanently; a file that had another name before, or has several, keeps its history.\n"
               "A new rule applies from the next change on. A directory is recorded again when an entry of it "
               "changes."},
    {.name = NULL},
};

static const char template_head[] =
    "# Settings for the automatic work of Wayback on this tree. See wayback.conf(5).\n"
    "#\n"
    "# The daemon reads this file when it mounts the tree, and again within seconds of a change.\n"
    "# `wayback --check-config` checks it.\n"
    "\n";

static const char template_sections[] =
    "# Files that programs can create again are kept for a shorter time, and deleted first when space runs low:\n"
    "#[path \".cache/\" \".ccache/\" \".thumbnails/\" \"Cache/\" \"CachedData/\" \".Trash-*/\"]\n"
    "#keep = 1d\n"
    "#[path \"build/\" \"target/\" \"node_modules/\" \".venv/\" \"__pycache__/\" \".tox/\"]\n"
    "#keep = 1d\n"
    "#[path \"*.o\" \"*.pyc\" \"*.part\" \"*.crdownload\" \"*.swp\"]\n"
    "#keep = 1h\n"
    "\n"
    "# Do not record these at all (their states of that time are refused); record databases once per close:\n"
    "#[path \".cache/\" \"node_modules/\" \".venv/\" \"target/\"]\n"
    "#history = none\n"
    "#[path \"*.sqlite\" \"*.db\"]\n"
    "#history = close\n";

static void add_keys(GString *text, const char *section, unsigned in)
{
    g_string_append(text, section);
    for (const struct wb_config_key *key = wb_config_keys; key->name; key++)
        if ((key->sections & in) && key->sample)
            g_string_append(text, key->sample);
    g_string_append_c(text, '\n');
}

char *wb_config_template(void)
{
    GString *text = g_string_new(template_head);

    add_keys(text, "[snapshots]\n", WB_IN_SNAPSHOTS);
    add_keys(text, "[history]\n", WB_IN_HISTORY);
    g_string_append(text, template_sections);
    return g_string_free(text, FALSE);
}

static const struct wb_config_key *find_key(const char *name, unsigned sections)
{
    for (const struct wb_config_key *key = wb_config_keys; key->name; key++)
        if ((key->sections & sections) && strcmp(key->name, name) == 0)
            return key;
    return NULL;
}

static void take_key(struct wb_config_parser *parser, const struct wb_config_line *line, unsigned in)
{
    const char *known[G_N_ELEMENTS(wb_config_keys)] = {NULL};
    size_t count = 0;

    parser->key = find_key(line->key, in);
    if (parser->key) {
        struct wb_config_setting setting = {parser->key, g_strdup(line->section), g_strdup(line->value),
                                            line->number};

        g_array_append_val(parser->config->settings, setting);
        parser->key->take(parser, line);
        return;
    }
    for (const struct wb_config_key *key = wb_config_keys; key->name; key++)
        if (key->sections & in)
            known[count++] = key->name;
    config_unknown(parser, line,
                   in == WB_IN_PATH      ? "key in [path ...]"
                   : in == WB_IN_HISTORY ? "key in [history]"
                                         : "key in [snapshots]",
                   line->key, known);
}

static void take(const struct wb_config_line *line, void *data)
{
    static const char *const sections[] = {"snapshots", "history", "path \"PATTERN\"", NULL};
    struct wb_config_parser *parser = data;
    g_autofree char *id = NULL;
    bool is_path = config_is_path_section(line->section);
    unsigned before;

    if (!line->key) {
        if (is_path)
            config_take_path(parser, line);
        else if (!g_strv_contains(sections, line->section))
            config_unknown(parser, line, "section", line->section, sections);
        return;
    }
    if (line->section[0] == '\0') {
        COMPLAIN(parser, line, line->column, "%s: not in a section; a line %s must come before", line->key,
                 find_key(line->key, WB_IN_HISTORY)     ? "[history]"
                 : find_key(line->key, WB_IN_SNAPSHOTS) ? "[snapshots]"
                                                     : "like [history]");
        return;
    }
    /* The section was complained of. */
    if (is_path ? !parser->rule : !g_strv_contains(sections, line->section))
        return;
    id = g_strdup_printf("%s\n%s", line->section, line->key);
    before = GPOINTER_TO_UINT(g_hash_table_lookup(parser->seen, id));
    if (before) {
        COMPLAIN(parser, line, line->column, "%s: already set in line %u; set it once", line->key, before);
        return;
    }
    g_hash_table_insert(parser->seen, g_steal_pointer(&id), GUINT_TO_POINTER(line->number));
    take_key(parser, line,
             is_path ? WB_IN_PATH : strcmp(line->section, "history") == 0 ? WB_IN_HISTORY : WB_IN_SNAPSHOTS);
}

void wb_config_init(struct wb_config *config)
{
    struct wb_config_parser parser = {.config = config};

    *config = (struct wb_config){0};
    for (const struct wb_config_key *key = wb_config_keys; key->name; key++) {
        struct wb_config_line line = {.section = "", .key = key->name, .value = key->initial};

        parser.key = key;
        if (key->initial)
            key->take(&parser, &line);
    }
}

static void free_setting(void *data)
{
    struct wb_config_setting *setting = data;

    g_free(setting->section);
    g_free(setting->value);
}

int wb_config_parse(struct wb_config *ret, const char *text, size_t length, wb_config_complain complain_to,
                    void *data)
{
    struct wb_config_parser parser = {.config = ret, .complain = complain_to, .data = data};

    wb_config_init(ret);
    ret->settings = g_array_new(false, false, sizeof(struct wb_config_setting));
    g_array_set_clear_func(ret->settings, free_setting);
    parser.seen = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    wb_config_read_lines(text, length, take, config_parser_complain, &parser);
    config_check_policy(&parser);
    g_hash_table_destroy(parser.seen);
    return parser.failed ? -EINVAL : 0;
}

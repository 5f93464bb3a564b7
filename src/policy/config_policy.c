/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The part of wayback.conf that says what may be forgotten: [path ...], and keys of [history]. */
#include "policy/config_parser.h"

#include "wayback/when.h"
#include <string.h>

#define WB_SPAN_YEARS 100
#define WB_SPAN_MAX (WB_SPAN_YEARS * INT64_C(365) * 86400)

/* ---- [path "PATTERN" ...] -------------------------------------------------------------------- */

bool wb_config_is_path_section(const char *section)
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

/* 1: one was read, 0: there are no more, -1: a mistake, told. */
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

void wb_config_take_path(struct wb_config_parser *parser, const struct wb_config_line *line)
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

enum wb_compact_mode wb_config_compact_mode(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    enum wb_compact_mode mode = wb_compact_mode_find(line->value);

    if (mode == WB_MODES)
        WB_COMPLAIN(parser, line->number, line->value_column,
                    "compact = %s: invalid; use none, zstd, delta or delta+zstd%s",
                    line->value, wb_config_comment_hint(line->value));
    return mode;
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

void wb_config_take_path_compact(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    enum wb_compact_mode mode = wb_config_compact_mode(parser, line);

    if (mode != WB_MODES)
        wb_path_rules_add(&parser->config->compaction.rules, line->section, parser->rule->line,
                          patterns_of(parser, line), mode);
}

void wb_config_take_path_history(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    enum wb_recording recording = wb_recording_find(line->value);

    if (recording == WB_RECORDINGS)
        WB_COMPLAIN(parser, line->number, line->value_column,
                    "history = %s: invalid; use write (record every change), close (record content at each close) or "
                    "none%s", line->value, wb_config_comment_hint(line->value));
    else
        wb_path_rules_add(&parser->config->recording.list, line->section, parser->rule->line,
                          patterns_of(parser, line), recording);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* In ns; -1: none, or too long. */
static int64_t span(const char *text)
{
    int64_t seconds = wb_config_duration(text);

    return seconds >= 1 && seconds <= WB_SPAN_MAX ? seconds * WB_WHEN_SECOND : -1;
}

static void take_keep(struct wb_config_parser *parser, struct wb_retention *retention,
                      const struct wb_config_line *line)
{
    int64_t keep = strcmp(line->value, "forever") == 0 ? WB_FOREVER : span(line->value);

    retention->aged = true;
    if (keep < 0)
        WB_COMPLAIN(parser, line->number, line->value_column,
                    "keep = %s: invalid; use an age from 1s to %uy, or forever, e.g. keep = 30d%s",
                    line->value, WB_SPAN_YEARS, wb_config_comment_hint(line->value));
    else
        retention->keep = keep;
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
        WB_COMPLAIN(parser, line->number, column, "thin: %s: %s%s", word, why, wb_config_comment_hint(line->value));
        return false;
    }
    retention->thin[count].step = step;
    retention->thin[count].span = length;
    retention->thin_count++;
    return true;
}

static void take_thin(struct wb_config_parser *parser, struct wb_retention *retention,
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
        least = wb_config_number(line->value, length, WB_VERSIONS_MAX);
    if (dots && dots[2] != '\0')
        most = wb_config_number(dots + 2, strlen(dots + 2), WB_VERSIONS_MAX);
    if (!dots || least < 0 || most < 0 || (length > 0 && least == 0) || (dots[2] != '\0' && most == 0) ||
        (length == 0 && dots[2] == '\0'))
        WB_COMPLAIN(parser, line->number, line->value_column,
                    "keep-versions = %s: invalid; use MIN..MAX, MIN.. or ..MAX, from 1 to %d, e.g. keep-versions = "
                    "5..100%s",
                    line->value, WB_VERSIONS_MAX, wb_config_comment_hint(line->value));
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

bool wb_config_take_retention(struct wb_config_parser *parser, struct wb_policy_rule *rule,
                              const struct wb_config_line *line)
{
    if (strcmp(line->key, "keep") == 0) {
        said(rule, WB_RETENTION_KEEP, line);
        take_keep(parser, &rule->retention, line);
    } else if (strcmp(line->key, "thin") == 0) {
        said(rule, WB_RETENTION_THIN, line);
        take_thin(parser, &rule->retention, line);
    } else if (strcmp(line->key, "keep-versions") == 0) {
        said(rule, WB_RETENTION_VERSIONS, line);
        take_versions(parser, &rule->retention, line);
    } else {
        return false;
    }
    return true;
}

/* ---- room ------------------------------------------------------------------------------------ */

/* What a unit multiplies by; 0: it is none. */
static uint64_t unit_of(const char *text)
{
    static const char letters[] = "KMGTPE";
    const char *letter = *text ? strchr(letters, g_ascii_toupper(*text)) : NULL;
    uint64_t base = 1024, value = 1;

    if (*text == '\0' || strcmp(text, "B") == 0)
        return 1;
    if (!letter)
        return 0;
    if (strcmp(text + 1, "B") == 0)
        base = 1000;
    else if (text[1] != '\0' && strcmp(text + 1, "iB") != 0)
        return 0;
    for (const char *at = letters; at <= letter; at++)
        value *= base;
    return value;
}

static bool parse_room(const char *text, struct wb_room *ret)
{
    size_t digits = strspn(text, "0123456789");
    int64_t value = wb_config_number(text, digits, INT64_MAX / 16);
    const char *unit = text + digits + strspn(text + digits, " ");
    uint64_t factor = unit_of(unit);

    if (value < 1)
        return false;
    if (strcmp(unit, "%") == 0) {
        ret->percent = (unsigned)MIN(value, 100);
        return value < 100;
    }
    if (factor == 0 || (uint64_t)value > INT64_MAX / factor)
        return false;
    ret->bytes = (uint64_t)value * factor;
    return true;
}

bool wb_config_take_room(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    bool size = strcmp(line->key, "max-size") == 0, user = strcmp(line->key, "user-max-size") == 0;
    struct wb_policy *policy = &parser->config->policy;

    if (!size && !user && strcmp(line->key, "reserve") != 0)
        return false;
    if (!parse_room(line->value, user ? &policy->user_max : size ? &policy->max_size : &policy->reserve))
        WB_COMPLAIN(parser, line->number, line->value_column,
                    "%s = %s: invalid; use a number of bytes (K, M, G, T; KB, MB, ... for powers of 1000) or a share "
                    "of the device from 1%% to 99%%, e.g. %s%s", line->key, line->value,
                    user ? "user-max-size = 5G" : size ? "max-size = 20G" : "reserve = 10%",
                    wb_config_comment_hint(line->value));
    if (user)
        return true;
    if (size) {
        parser->max_size.line = line->number;
        parser->max_size.column = line->column;
    } else {
        parser->reserve.line = line->number;
        parser->reserve.column = line->column;
    }
    return true;
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

/* The section in that line, if it says nothing of what is kept. */
static void part_rule(GPtrArray *rules, unsigned line)
{
    for (guint i = rules->len; i-- > 0;) {
        const struct wb_policy_rule *rule = g_ptr_array_index(rules, i);

        if (rule->line == line && !rule->retention.aged && !rule->retention.least && !rule->retention.most)
            g_ptr_array_remove_index(rules, i);
    }
}

/* Sections that say only what is recorded, or how it is packed, say nothing of what is kept: those before them hold. */
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

void wb_config_check_policy(struct wb_config_parser *parser)
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

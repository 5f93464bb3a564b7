/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "policy/config_parser.h"

#include "wayback/when.h"
#include <errno.h>
#include <glib.h>
#include <stdlib.h>
#include <string.h>

const char wb_config_template[] =
    "# Settings for the automatic work of Wayback on this tree. See wayback.conf(5).\n"
    "#\n"
    "# The daemon reads this file when it mounts the tree, and again within seconds of a change.\n"
    "# `wayback --check-config` checks it.\n"
    "\n"
    "[snapshots]\n"
    "# Every state can be read without them (`file@14:03`): snapshots are named times, listed by\n"
    "# `vsnap list` and in `.snapshot`. How many of each kind to keep:\n"
    "#hourly = 24\n"
    "#daily = 7\n"
    "#weekly = 4\n"
    "#monthly = 12\n"
    "# The time of day of the daily, weekly (Monday) and monthly (the 1st) ones:\n"
    "#at = 00:00\n"
    "# Snapshots at any other interval, here every ten minutes, and how many of them to keep:\n"
    "#every = 10m:36\n"
    "# How many snapshots each ordinary user may create of their own directories:\n"
    "#user-snapshots = 1024\n"
    "\n"
    "[history]\n"
    "# Idle history is packed (compressed) in the background. With none, only vcompact packs it.\n"
    "#compact = delta+zstd\n"
    "#compact-after = 5m\n"
    "# How long replaced versions and deleted files are kept in any case. (If they do not fit, changes\n"
    "# fail as on any full disk; use vrm or vprune then. A snapshot protects everything since it was\n"
    "# created.)\n"
    "keep = 7d\n"
    "# After that they are kept while this much of the device is free; else the oldest are deleted:\n"
    "reserve = 5%\n"
    "# Or while the history uses no more than this:\n"
    "#max-size = 200G\n"
    "# The limit for the history of the changes of each user except root. At the limit, the oldest of it is\n"
    "# deleted, or changes of this user fail:\n"
    "#user-max-size = 20G\n"
    "# Of older versions, keep the last of each hour for a month, and of each day for a year:\n"
    "#thin = 1h:30d 1d:1y\n"
    "\n"
    "# Changes are recorded with the command line. Root, the user who mounted and the same user see its\n"
    "# arguments, others only the name of the program. Record only that name (name), or nothing (none):\n"
    "#commands = full\n"
    "\n"
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

void wb_config_init(struct wb_config *config)
{
    *config = (struct wb_config){.user_snapshots = WB_USER_SNAPSHOTS};
    wb_compaction_init(&config->compaction);
    wb_policy_init(&config->policy);
}

void wb_config_deinit(struct wb_config *config)
{
    wb_compaction_deinit(&config->compaction);
    wb_recording_rules_deinit(&config->recording);
    wb_policy_deinit(&config->policy);
}

/* ---- mistakes -------------------------------------------------------------------------------- */

void wb_config_parser_complain(const struct wb_config_mistake *mistake, void *data)
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

void wb_config_unknown(struct wb_config_parser *parser, const struct wb_config_line *line, const char *what,
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

int64_t wb_config_number(const char *text, size_t length, int64_t most)
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

const char *wb_config_comment_hint(const char *value)
{
    return strchr(value, '#') ? " (a comment takes a line of its own)" : "";
}

static void take_keep(struct wb_config_parser *parser, const struct wb_config_line *line, enum wb_period period)
{
    int64_t keep = wb_config_number(line->value, strlen(line->value), WB_KEEP_MAX);

    if (keep < 0)
        COMPLAIN(parser, line, line->value_column,
                 "%s = %s: invalid; use a number from 0 to %d, e.g. %s = 24%s", line->key, line->value,
                 WB_KEEP_MAX, line->key, wb_config_comment_hint(line->value));
    parser->config->snapshots.periods[period].set = true;
    parser->config->snapshots.periods[period].keep = (unsigned)MAX(keep, 0);
}

static void take_user_snapshots(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    int64_t count = wb_config_number(line->value, strlen(line->value), WB_KEEP_MAX);

    if (count < 0)
        COMPLAIN(parser, line, line->value_column,
                 "user-snapshots = %s: invalid; use a number from 0 to %d, e.g. user-snapshots = 100%s", line->value,
                 WB_KEEP_MAX, wb_config_comment_hint(line->value));
    parser->config->user_snapshots = (unsigned)MAX(count, 0);
}

/* The one parser of times reads it as that long before; it knows no years, which are of no use there. */
int64_t wb_config_duration(const char *text)
{
    const int64_t now = WB_WHEN_SECOND * 9000000000;
    size_t digits = strspn(text, "0123456789");
    struct wb_time time;

    if (strcmp(text + digits, "y") == 0)
        return wb_config_number(text, digits, 1000) * 365 * 86400;
    if (digits == 0 || wb_time_parse(text, now, &time) != 0 || time.kind != WB_TIME_INSTANT || !time.relative)
        return -1;
    return (now - time.instant) / WB_WHEN_SECOND;
}

static void take_every(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    struct wb_schedule *schedule = &parser->config->snapshots;
    const char *colon = strchr(line->value, ':');
    g_autofree char *period = colon ? g_strndup(line->value, (size_t)(colon - line->value)) : NULL;
    int64_t seconds = period ? wb_config_duration(g_strstrip(period)) : -1, keep = -1;

    if (colon) {
        const char *count = colon + 1 + strspn(colon + 1, " \t");

        keep = wb_config_number(count, strlen(count), WB_KEEP_MAX);
    }
    if (seconds < 1 || seconds > WB_EVERY_MAX || keep < 0)
        COMPLAIN(parser, line, line->value_column,
                 "every = %s: invalid; use an interval from 1s to 24h and the number to keep (at most %d), e.g. "
                 "every = 10m:36%s", line->value, WB_KEEP_MAX, wb_config_comment_hint(line->value));
    schedule->every = seconds >= 1 && seconds <= WB_EVERY_MAX ? (unsigned)seconds : 1;
    schedule->periods[WB_EVERY].set = true;
    schedule->periods[WB_EVERY].keep = (unsigned)MAX(keep, 0);
}

static void take_at(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    const char *text = line->value;
    size_t digits = strspn(text, "0123456789");
    int64_t hour = digits <= 2 ? wb_config_number(text, digits, 23) : -1, minute = -1;

    if (text[digits] == ':' && strlen(text + digits + 1) == 2)
        minute = wb_config_number(text + digits + 1, 2, 59);
    if (hour < 0 || minute < 0)
        COMPLAIN(parser, line, line->value_column,
                 "at = %s: invalid; use a time of day from 00:00 to 23:59, e.g. at = 03:30%s", text,
                 wb_config_comment_hint(text));
    else
        parser->config->snapshots.at = (unsigned)(hour * 60 + minute);
}

static void take_compact(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    enum wb_compact_mode mode = wb_config_compact_mode(parser, line);

    if (mode != WB_MODES)
        parser->config->compaction.mode = mode;
}

static void take_compact_after(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    int64_t seconds = wb_config_duration(line->value);

    if (seconds < 1 || seconds > WB_REST_MAX)
        COMPLAIN(parser, line, line->value_column,
                 "compact-after = %s: invalid; use an interval from 1s to 366d, e.g. compact-after = 5m%s",
                 line->value, wb_config_comment_hint(line->value));
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
    COMPLAIN(parser, line, line->value_column, "commands = %s: invalid; use none, name or full%s", line->value,
             wb_config_comment_hint(line->value));
}

/* ---- keys ------------------------------------------------------------------------------------ */

static const char *const snapshots_keys[] = {"hourly", "daily", "weekly", "monthly", "every", "at", "user-snapshots",
                                             NULL};
static const char *const history_keys[] = {"compact",       "compact-after", "keep",    "thin",
                                           "keep-versions", "max-size",      "user-max-size", "reserve",
                                           "commands",      NULL};

static void take_snapshots_key(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    if (strcmp(line->key, "every") == 0) {
        take_every(parser, line);
        return;
    }
    if (strcmp(line->key, "at") == 0) {
        take_at(parser, line);
        return;
    }
    if (strcmp(line->key, "user-snapshots") == 0) {
        take_user_snapshots(parser, line);
        return;
    }
    for (enum wb_period period = WB_HOURLY; period < WB_PERIODS; period++) {
        if (strcmp(line->key, period_names[period]) == 0) {
            take_keep(parser, line, period);
            return;
        }
    }
    wb_config_unknown(parser, line, "key in [snapshots]", line->key, snapshots_keys);
}

static void take_history_key(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    if (strcmp(line->key, "compact") == 0)
        take_compact(parser, line);
    else if (strcmp(line->key, "compact-after") == 0)
        take_compact_after(parser, line);
    else if (strcmp(line->key, "commands") == 0)
        take_commands(parser, line);
    else if (!wb_config_take_retention(parser, &parser->config->policy.everything, line) &&
             !wb_config_take_room(parser, line))
        wb_config_unknown(parser, line, "key in [history]", line->key, history_keys);
}

static void take_path_key(struct wb_config_parser *parser, const struct wb_config_line *line)
{
    static const char *const known[] = {"keep", "thin", "keep-versions", "compact", "history", NULL};

    if (strcmp(line->key, "compact") == 0)
        wb_config_take_path_compact(parser, line);
    else if (strcmp(line->key, "history") == 0)
        wb_config_take_path_history(parser, line);
    else if (!wb_config_take_retention(parser, parser->rule, line))
        wb_config_unknown(parser, line, "key in [path ...]", line->key, known);
}

static void take(const struct wb_config_line *line, void *data)
{
    static const char *const sections[] = {"snapshots", "history", "path \"PATTERN\"", NULL};
    struct wb_config_parser *parser = data;
    g_autofree char *id = NULL;
    bool is_path = wb_config_is_path_section(line->section);
    unsigned before;

    if (!line->key) {
        if (is_path)
            wb_config_take_path(parser, line);
        else if (!g_strv_contains(sections, line->section))
            wb_config_unknown(parser, line, "section", line->section, sections);
        return;
    }
    if (line->section[0] == '\0') {
        COMPLAIN(parser, line, line->column, "%s: not in a section; a line %s must come before", line->key,
                 g_strv_contains(history_keys, line->key)     ? "[history]"
                 : g_strv_contains(snapshots_keys, line->key) ? "[snapshots]"
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
    if (is_path)
        take_path_key(parser, line);
    else if (strcmp(line->section, "history") == 0)
        take_history_key(parser, line);
    else
        take_snapshots_key(parser, line);
}

int wb_config_parse(struct wb_config *ret, const char *text, size_t length, wb_config_complain complain_to,
                    void *data)
{
    struct wb_config_parser parser = {.config = ret, .complain = complain_to, .data = data};

    wb_config_init(ret);
    parser.seen = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    wb_config_read_lines(text, length, take, wb_config_parser_complain, &parser);
    wb_config_check_policy(&parser);
    g_hash_table_destroy(parser.seen);
    return parser.failed ? -EINVAL : 0;
}

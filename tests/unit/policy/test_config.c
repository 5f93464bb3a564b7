/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "policy/config.h"
#include "wayback/when.h"
#include <check.h>
#include <errno.h>
#include <glib.h>
#include <stdlib.h>
#include <string.h>

/* wayback.conf: the settings that are read, and that each mistake is reported with its place. */

static GString *reported;

static void report(const struct wb_config_mistake *mistake, void *data)
{
    ck_assert_ptr_eq(data, &reported);
    g_string_append_printf(reported, "%u:%u: %s\n", mistake->line, mistake->column, mistake->text);
}

static int parse(struct wb_config *config, const char *text, size_t length)
{
    g_string_truncate(reported, 0);
    return wb_config_parse(config, text, length, report, &reported);
}

static struct wb_config good(const char *text)
{
    struct wb_config config;

    ck_assert_msg(parse(&config, text, strlen(text)) == 0, "%s: %s", text, reported->str);
    ck_assert_str_eq(reported->str, "");
    return config;
}

START_TEST(an_empty_file_means_no_snapshots)
{
    static const char *const texts[] = {"", "\n\n", "# hourly = 24\n", "; a comment", "[snapshots]", "\xef\xbb\xbf[snapshots]\n"};

    for (unsigned i = 0; i < G_N_ELEMENTS(texts); i++) {
        struct wb_config config = good(texts[i]);

        for (enum wb_period period = 0; period < WB_PERIODS; period++)
            ck_assert(!config.snapshots.periods[period].set);
        ck_assert_uint_eq(config.snapshots.at, 0);
    }
}
END_TEST

START_TEST(all_keys_are_understood)
{
    struct wb_config config = good("  [ snapshots ]  \r\n hourly=24\r\n\tdaily = 7\nweekly =4\nmonthly= 12\n"
                                   "at = 3:30\nevery = 1h30m : 36");

    ck_assert(config.snapshots.periods[WB_HOURLY].set);
    ck_assert_uint_eq(config.snapshots.periods[WB_HOURLY].keep, 24);
    ck_assert_uint_eq(config.snapshots.periods[WB_DAILY].keep, 7);
    ck_assert_uint_eq(config.snapshots.periods[WB_WEEKLY].keep, 4);
    ck_assert_uint_eq(config.snapshots.periods[WB_MONTHLY].keep, 12);
    ck_assert_uint_eq(config.snapshots.periods[WB_EVERY].keep, 36);
    ck_assert_uint_eq(config.snapshots.every, 5400);
    ck_assert_uint_eq(config.snapshots.at, 3 * 60 + 30);
    config = good("[history]\ncompact = none\ncompact-after = 1h30m\n");
    ck_assert_int_eq(config.compaction.mode, WB_MODE_NONE);
    ck_assert_uint_eq(config.compaction.rest, 5400);
    config = good("");
    ck_assert_int_eq(config.compaction.mode, WB_MODE_DELTA_ZSTD);
    ck_assert_uint_eq(config.compaction.rest, 300);
    ck_assert_int_eq(config.commands, WB_COMMANDS_FULL);
    ck_assert_int_eq(good("[history]\ncommands = name\n").commands, WB_COMMANDS_NAME);
    ck_assert_int_eq(good("[history]\ncommands = none\n").commands, WB_COMMANDS_NONE);
    config = good("[snapshots]\nhourly = 0\nevery = 24h:10000\n[snapshots]\ndaily = 1");
    ck_assert(config.snapshots.periods[WB_HOURLY].set);
    ck_assert_uint_eq(config.snapshots.periods[WB_HOURLY].keep, 0);
    ck_assert_uint_eq(config.snapshots.every, 86400);
    ck_assert_uint_eq(config.snapshots.periods[WB_DAILY].keep, 1);
}
END_TEST

/* The default and the example of each key are values of it, in each section that it may stand in. */
START_TEST(test_defaults_and_examples_are_valid)
{
    static const char *const sections[] = {"snapshots", "history", "path \"a\""};

    for (const struct wb_config_key *key = wb_config_keys; key->name; key++) {
        const char *values[] = {key->initial, key->example};

        ck_assert(key->take && key->syntax && key->help && key->sections);
        for (unsigned i = 0; i < G_N_ELEMENTS(values) * G_N_ELEMENTS(sections); i++) {
            const char *value = values[i / G_N_ELEMENTS(sections)], *section = sections[i % G_N_ELEMENTS(sections)];
            g_autofree char *text = g_strdup_printf("[%s]\n%s = %s\n[history]\n%s", section, key->name, value,
                                                    strcmp(key->name, "keep-versions") == 0 ? "thin = 1h:2d\n" : "");
            struct wb_config config;

            if (!value || !(key->sections & (1u << (i % G_N_ELEMENTS(sections)))))
                continue;
            config = good(text);
            ck_assert_ptr_eq(g_array_index(config.settings, struct wb_config_setting, 0).key, key);
            ck_assert_str_eq(g_array_index(config.settings, struct wb_config_setting, 0).value, value);
            wb_config_deinit(&config);
        }
    }
}
END_TEST

static enum wb_compact_mode mode_of(const struct wb_config *config, const char *path)
{
    const struct wb_path_rule *rule = wb_path_rules_find(config->compaction.rules, path, false);

    return rule ? rule->setting : config->compaction.mode;
}

/* A section that only sets the packing is not about retention, and the reverse. */
START_TEST(test_packing_and_retention_are_found_separately)
{
    struct wb_config config = good("[history]\ncompact = zstd\nkeep = 30d\n[path \"tmp/\" \"*.o\"]\nkeep = 1d\n"
                                   "[path \"*.mp4\" \"!a.mp4\"]\ncompact = none\n"
                                   "[path \"/db\"]\ncompact = delta\nkeep = 2d\n");

    ck_assert_int_eq(mode_of(&config, "x.o"), WB_MODE_ZSTD);
    ck_assert_int_eq(mode_of(&config, "tmp/x.mp4"), WB_MODE_NONE);
    ck_assert_int_eq(mode_of(&config, "a.mp4"), WB_MODE_ZSTD);
    ck_assert_int_eq(mode_of(&config, "db"), WB_MODE_DELTA);
    ck_assert_str_eq(wb_compact_mode_name(WB_MODE_DELTA_ZSTD), "delta+zstd");
    ck_assert_int_eq(wb_policy_find(&config.policy, "tmp/x.mp4", false)->retention.keep, 86400 * WB_WHEN_SECOND);
    ck_assert_int_eq(wb_policy_find(&config.policy, "x.mp4", false)->retention.keep, 30 * 86400 * WB_WHEN_SECOND);
    ck_assert_int_eq(wb_policy_find(&config.policy, "db", false)->retention.keep, 2 * 86400 * WB_WHEN_SECOND);
    ck_assert(wb_compaction_does_something(&config.compaction));
    wb_config_deinit(&config);
    config = good("[history]\ncompact = none\n[path \"*.mp4\"]\ncompact = none\n");
    ck_assert(!config.policy.rules && !wb_compaction_does_something(&config.compaction));
    wb_config_deinit(&config);
    config = good("[history]\ncompact = none\n[path \"*.c\"]\ncompact = delta+zstd\n");
    ck_assert(wb_compaction_does_something(&config.compaction));
    wb_config_deinit(&config);
}
END_TEST

/* The template has settings for a home directory, and without its comments it is a valid file that has all keys. */
START_TEST(the_template_is_right_and_so_are_its_examples)
{
    g_autofree char *template = wb_config_template();
    struct wb_config config = good(template);
    g_autoptr(GString) bare = g_string_new(template);

    ck_assert(!config.snapshots.periods[WB_HOURLY].set);
    ck_assert_int_eq(wb_policy_least(&config.policy), 7 * 86400 * INT64_C(1000000000));
    ck_assert_int_eq(wb_policy_hold(&config.policy), 7 * 86400 * INT64_C(1000000000));
    ck_assert_uint_eq(config.policy.reserve.percent, 5);
    for (const char *key = "hdwmaecktr["; *key; key++) {
        char from[] = {'\n', '#', *key, '\0'}, to[] = {'\n', *key, '\0'};

        g_string_replace(bare, from, to, 0);
    }
    config = good(bare->str);
    for (enum wb_period period = 0; period < WB_PERIODS; period++)
        ck_assert_uint_gt(config.snapshots.periods[period].keep, 0);
    ck_assert_int_eq(wb_policy_find(&config.policy, "src/a.o", false)->retention.keep, 3600 * INT64_C(1000000000));
    ck_assert_int_eq(wb_policy_find(&config.policy, "a/.cache/x", false)->retention.keep,
                     86400 * INT64_C(1000000000));
    ck_assert_ptr_null(wb_policy_find(&config.policy, "letter.odt", false)->title);
    ck_assert_uint_eq(config.policy.everything.retention.thin_count, 2);
}
END_TEST

static const struct wb_retention *retention_of(const struct wb_config *config, const char *path)
{
    return &wb_policy_find(&config->policy, path, false)->retention;
}

START_TEST(retention_is_understood)
{
    struct wb_config config = good("[history]\nkeep = 1h30m\nthin = 1h:2d 1d:30d 1w:1y\nkeep-versions = 5..100\n"
                                   "max-size = 20 GiB\nreserve = 10%\n"
                                   "[path \"*.o\" \"!a\\\"b.o\"]\nkeep = 1s\nkeep-versions = 2..\n"
                                   "[path\t\"/x/\"]\nkeep-versions = ..7\n[path \"x/y\"]\nkeep = forever\n");
    const struct wb_retention *all = retention_of(&config, "a"), *objects = retention_of(&config, "d/a.o");

    ck_assert_int_eq(all->keep, 5400 * INT64_C(1000000000));
    ck_assert_uint_eq(all->thin_count, 3);
    ck_assert_int_eq(all->thin[2].step, 7 * 86400 * INT64_C(1000000000));
    ck_assert_int_eq(all->thin[2].span, 365 * 86400 * INT64_C(1000000000));
    ck_assert_uint_eq(all->least, 5);
    ck_assert_uint_eq(all->most, 100);
    ck_assert_ptr_eq(retention_of(&config, "a\"b.o"), all);
    ck_assert_int_eq(objects->keep, 1000000000);
    /* Nothing is inherited from an earlier rule. */
    ck_assert(objects->aged && objects->thin_count == 0 && objects->least == 2 && objects->most == 0);
    ck_assert(!retention_of(&config, "x/a.o")->aged);
    ck_assert_uint_eq(retention_of(&config, "x/a.o")->most, 7);
    ck_assert_int_eq(retention_of(&config, "x/y/z")->keep, WB_FOREVER);
    ck_assert_uint_eq(config.policy.max_size.bytes, UINT64_C(20) << 30);
    ck_assert_uint_eq(config.policy.reserve.percent, 10);
    wb_config_deinit(&config);
    config = good("[history]\nmax-size = 3MB\nreserve = 4096");
    ck_assert_uint_eq(config.policy.max_size.bytes, 3000000);
    ck_assert_uint_eq(config.policy.reserve.bytes, 4096);
    ck_assert(wb_policy_says_something(&config.policy));
    wb_config_deinit(&config);
    config = good("[history]\nkeep = 30 days\nthin = 1h:1month 1d:1year\nmax-size = 1.5g\nreserve = 20 gib");
    ck_assert_int_eq(retention_of(&config, "a")->keep, 30 * 86400 * INT64_C(1000000000));
    ck_assert_int_eq(retention_of(&config, "a")->thin[0].span, 30 * 86400 * INT64_C(1000000000));
    ck_assert_uint_eq(config.policy.max_size.bytes, UINT64_C(3) << 29);
    ck_assert_uint_eq(config.policy.reserve.bytes, UINT64_C(20) << 30);
    ck_assert(!config.policy.max_size.hard);
    wb_config_deinit(&config);
    config = good("[history]\nmax-size = 20 GiB  hard");
    ck_assert_uint_eq(config.policy.max_size.bytes, UINT64_C(20) << 30);
    ck_assert(config.policy.max_size.hard);
    wb_config_deinit(&config);
    config = good("[history]\nmax-size = 20% hard");
    ck_assert_uint_eq(config.policy.max_size.percent, 20);
    ck_assert(config.policy.max_size.hard);
    wb_config_deinit(&config);
    config = good("[snapshots]\nhourly = 3");
    ck_assert(!wb_policy_says_something(&config.policy));
}
END_TEST

struct bad {
    const char *text;
    const char *reported;
};

static const struct bad bad_texts[] = {
    {"hourly = 24\n", "1:1: hourly: not in a section; a line [snapshots] must come before\n"},
    {"max-size = 1G\n", "1:1: max-size: not in a section; a line [history] must come before\n"},
    {"size = 1G\n", "1:1: size: not in a section; a line like [history] must come before\n"},
    {"[snapshots]\n  hourlly = 24\n", "2:3: hourlly: no such key in [snapshots]; did you mean hourly?\n"},
    {"[snapshots]\nDaily = 24\n", "2:1: Daily: no such key in [snapshots]; did you mean daily?\n"},
    {"[snapshots]\ncompression = no\n",
     "2:1: compression: no such key in [snapshots]; use one of hourly, daily, weekly, monthly, at, every, "
     "user-snapshots\n"},
    {"[snapshot]\nhourly = 1\nx = 2\n", "1:2: snapshot: no such section; did you mean snapshots?\n"},
    {"[retention]\n", "1:2: retention: no such section; use one of snapshots, history, path \"PATTERN\"\n"},
    {"[history]\ncompact = gzip\n", "2:11: compact = gzip: invalid; use none, zstd, delta or delta+zstd\n"},
    {"[history]\ncompact-after = 0s\n",
     "2:17: compact-after = 0s: invalid; use an interval from 1s to 366d, e.g. compact-after = 5m\n"},
    {"[history]\ncommands = arguments\n", "2:12: commands = arguments: invalid; use none, name or full\n"},
    {"[history]\ncompacted = zstd\n", "2:1: compacted: no such key in [history]; did you mean compact?\n"},
    {"[history]\nkeep = 30\n", "2:8: keep = 30: invalid; use an age from 1s to 100y, or forever, e.g. keep = 30d\n"},
    {"[history]\nkeep = 101y\n",
     "2:8: keep = 101y: invalid; use an age from 1s to 100y, or forever, e.g. keep = 30d\n"},
    {"[history]\nkeep = 0s\n", "2:8: keep = 0s: invalid; use an age from 1s to 100y, or forever, e.g. keep = 30d\n"},
    {"[history]\nkept = 30d\n", "2:1: kept: no such key in [history]; did you mean keep?\n"},
    {"[history]\nkeep = 1d\n[history]\nkeep = 2d\n", "4:1: keep: already set in line 2; set it once\n"},
    {"[history]\nthin = 1h\n",
     "2:8: thin: 1h: each is STEP:SPAN, e.g. 1h:2d for one version per hour for two days\n"},
    {"[history]\nthin = 1h:2d  1d:x\n",
     "2:15: thin: 1d:x: each is STEP:SPAN, e.g. 1h:2d for one version per hour for two days\n"},
    {"[history]\nthin = \n", "2:7: thin = : each is STEP:SPAN, e.g. thin = 1h:2d 1d:30d 1w:1y\n"},
    {"[history]\nthin = 2d:1h\n", "2:8: thin: 2d:1h: the step is longer than the span\n"},
    {"[history]\nthin = 1d:30d 1h:60d\n",
     "2:15: thin: 1h:60d: the steps must grow, e.g. thin = 1h:2d 1d:30d 1w:1y\n"},
    {"[history]\nthin = 1h:30d 1d:30d\n",
     "2:15: thin: 1d:30d: the spans must grow, e.g. thin = 1h:2d 1d:30d 1w:1y\n"},
    {"[history]\nkeep = 30d\nthin = 1h:2d 1d:30d\n",
     "2:1: keep: thin has no effect, because it ends after 30d; use a longer thin, or a shorter keep\n"},
    {"[history]\nkeep = forever\nkeep-versions = 1..2\n", "3:1: keep-versions has no effect with keep = forever\n"},
    {"[history]\nkeep-versions = 5\n",
     "2:17: keep-versions = 5: invalid; use MIN..MAX, MIN.. or ..MAX, from 1 to 1000000, e.g. keep-versions = "
     "5..100\n"},
    {"[history]\nkeep-versions = ..\n",
     "2:17: keep-versions = ..: invalid; use MIN..MAX, MIN.. or ..MAX, from 1 to 1000000, e.g. keep-versions = "
     "5..100\n"},
    {"[history]\nkeep-versions = 0..3\n",
     "2:17: keep-versions = 0..3: invalid; use MIN..MAX, MIN.. or ..MAX, from 1 to 1000000, e.g. keep-versions = "
     "5..100\n"},
    {"[history]\nkeep-versions = 1..1000001\n",
     "2:17: keep-versions = 1..1000001: invalid; use MIN..MAX, MIN.. or ..MAX, from 1 to 1000000, e.g. "
     "keep-versions = 5..100\n"},
    {"[history]\nkeep-versions = 6..5\n",
     "2:17: keep-versions = 6..5: MIN is greater than MAX; use MIN..MAX, e.g. keep-versions = 5..100\n"},
    {"[history]\nkeep-versions = 6..\n",
     "2:1: keep-versions: a minimum has no effect because all versions are kept; set keep or thin as well, or a "
     "maximum\n"},
    {"[history]\nkeep = 1d\nkeep-versions = ..6\n",
     "3:1: keep-versions: a maximum has no effect with keep alone, which keeps young versions and no others; use "
     "thin = STEP:SPAN instead of keep, or only MIN..\n"},
    {"[history]\nmax-size = big\n",
     "2:12: max-size = big: invalid; use a number of bytes (K, M, G, T; KB, MB, ... for powers of 1000) or a share "
     "of the device from 1% to 99%, and perhaps the word hard after it, e.g. max-size = 20G\n"},
    {"[history]\nmax-size = hard\n",
     "2:12: max-size = hard: invalid; use a number of bytes (K, M, G, T; KB, MB, ... for powers of 1000) or a share "
     "of the device from 1% to 99%, and perhaps the word hard after it, e.g. max-size = 20G\n"},
    {"[history]\nmax-size = 1Ghard\n",
     "2:12: max-size = 1Ghard: invalid; use a number of bytes (K, M, G, T; KB, MB, ... for powers of 1000) or a share "
     "of the device from 1% to 99%, and perhaps the word hard after it, e.g. max-size = 20G\n"},
    {"[history]\nmax-size = 0\n",
     "2:12: max-size = 0: invalid; use a number of bytes (K, M, G, T; KB, MB, ... for powers of 1000) or a share of "
     "the device from 1% to 99%, and perhaps the word hard after it, e.g. max-size = 20G\n"},
    {"[history]\nmax-size = 9E\n",
     "2:12: max-size = 9E: invalid; use a number of bytes (K, M, G, T; KB, MB, ... for powers of 1000) or a share "
     "of the device from 1% to 99%, and perhaps the word hard after it, e.g. max-size = 20G\n"},
    {"[history]\nreserve = 100%\n",
     "2:11: reserve = 100%: invalid; use a number of bytes (K, M, G, T; KB, MB, ... for powers of 1000) or a share "
     "of the device from 1% to 99%, e.g. reserve = 10%\n"},
    {"[history]\nreserve = 10 # %\n",
     "2:11: reserve = 10 # %: invalid; use a number of bytes (K, M, G, T; KB, MB, ... for powers of 1000) or a "
     "share of the device from 1% to 99%, e.g. reserve = 10% (a comment takes a line of its own)\n"},
    {"[history]\nreserve = 30%\nmax-size = 71%\n", "3:1: max-size = 71% and reserve = 30%: together more than 100%\n"},
#define PATH_HINT "patterns in quotes must follow, e.g. [path \"*.o\"] or [path \"*.log\" \"!audit.log\"]"
    {"[path]\nkeep = 1d\n", "1:2: [path]: " PATH_HINT "\n"},
    {"[path *.o]\nkeep = 1d\n", "1:7: [path *.o]: " PATH_HINT "\n"},
    {"[path \"a\" \"b]\nkeep = 1d\n", "1:11: [path \"a\" \"b]: " PATH_HINT "\n"},
    {"[path \"a\" \"\"]\nkeep = 1d\n", "1:12: \"\" is an invalid pattern: it is empty\n"},
    {"[path \"\xc3\xa4/b//\"]\nkeep = 1d\n",
     "1:12: \"\xc3\xa4/b//\" is an invalid pattern: a name is missing before or after a /\n"},
    {"[path \"x[a\"]\nkeep = 1d\n",
     "1:9: \"x[a\" is an invalid pattern: a [ without a ] in the same name; for the character itself write \\[\n"},
    {"[path \"a/../b\"]\nkeep = 1d\n", "1:10: \"a/../b\" is an invalid pattern: no file can have the name . or ..\n"},
    {"[path \"a\"]\n[path \"b\"]\nkeep = 1d\n",
     "1:1: [path \"a\"]: empty; set keep, thin, keep-versions (keep = forever keeps all), compact or history\n"},
    {"[path \"a\"]\nkeep = 1d\n[path \"a\"]\nkeep = 2d\n",
     "3:2: [path \"a\"]: already in line 1; put all keys there\n"},
    {"[path \"a\"]\nmax-size = 1G\nkeep = 1d\n",
     "2:1: max-size: no such key in [path ...]; use one of compact, keep, thin, keep-versions, history\n"},
    {"[snapshots\nhourly = 1\n", "1:1: [snapshots: invalid section; write [NAME] in a line of its own\n"},
    {"[snapshots] # why\n", "1:1: [snapshots] # why: invalid section; write [NAME] in a line of its own\n"},
    {"[snapshots]\nhourly\n", "2:1: hourly: invalid line; write `key = value`, [section] or # comment\n"},
    {"[snapshots]\n= 7\n", "2:1: = 7: the key is missing; write `key = value`\n"},
    {"[snapshots]\nhourly =  many\n", "2:11: hourly = many: invalid; use a number from 0 to 10000, e.g. hourly = 24\n"},
    {"[snapshots]\ndaily = 7 # a week\n",
     "2:9: daily = 7 # a week: invalid; use a number from 0 to 10000, e.g. daily = 24 (a comment takes a line of "
     "its own)\n"},
    {"[snapshots]\nhourly = 10001\n",
     "2:10: hourly = 10001: invalid; use a number from 0 to 10000, e.g. hourly = 24\n"},
    {"[snapshots]\nhourly = -1\n", "2:10: hourly = -1: invalid; use a number from 0 to 10000, e.g. hourly = 24\n"},
    {"[snapshots]\nhourly = \n", "2:9: hourly = : invalid; use a number from 0 to 10000, e.g. hourly = 24\n"},
    {"[snapshots]\nat = 24:00\n", "2:6: at = 24:00: invalid; use a time of day from 00:00 to 23:59, e.g. at = 03:30\n"},
    {"[snapshots]\nat = 3:5\n", "2:6: at = 3:5: invalid; use a time of day from 00:00 to 23:59, e.g. at = 03:30\n"},
    {"[snapshots]\nat = 003:15\n",
     "2:6: at = 003:15: invalid; use a time of day from 00:00 to 23:59, e.g. at = 03:30\n"},
    {"[snapshots]\nhourly = 1\nhourly = 2\n", "3:1: hourly: already set in line 2; set it once\n"},
    {"[snapshots]\nh\xc3\xa4lf = \xff\n", "2:8: the byte 0xff is not UTF-8 text\n"},
    {"[snapshots]\nhourly = 1x\n[]\n\nweekly: 3\n",
     "2:10: hourly = 1x: invalid; use a number from 0 to 10000, e.g. hourly = 24\n"
     "3:2: : no such section; use one of snapshots, history, path \"PATTERN\"\n"
     "5:1: weekly: 3: invalid line; write `key = value`, [section] or # comment\n"},
};

START_TEST(each_mistake_is_reported_with_its_place)
{
    const struct bad *bad = &bad_texts[_i];
    struct wb_config config;

    ck_assert_int_eq(parse(&config, bad->text, strlen(bad->text)), -EINVAL);
    ck_assert_str_eq(reported->str, bad->reported);
    wb_config_deinit(&config);
}
END_TEST

START_TEST(intervals_are_ages)
{
    static const char *const bad[] = {"10m", "10m:", ":5", "10:5", "0s:5", "25h:5", "1d1s:5", "now:5", "14:03:5",
                                      "10m:x", "-1s:5", "~3:5", "10m:36:7", "1w:3"};
    struct wb_config config;

    ck_assert_uint_eq(good("[snapshots]\nevery = 2s:5").snapshots.every, 2);
    ck_assert_uint_eq(good("[snapshots]\nevery = 1d:0").snapshots.every, 86400);
    for (unsigned i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autofree char *text = g_strdup_printf("[snapshots]\nevery = %s\n", bad[i]);

        ck_assert_msg(parse(&config, text, strlen(text)) == -EINVAL, "%s", bad[i]);
        ck_assert_ptr_nonnull(strstr(reported->str, "every = 10m:36"));
    }
}
END_TEST

START_TEST(any_bytes_are_survived)
{
    static const char alphabet[] = "[]=#;\n\n  \thourlyatdevry0123:\xc3\xa4\xff";
    g_autoptr(GRand) random = g_rand_new_with_seed(5);
    struct wb_config config;

    for (int i = 0; i < 20000; i++) {
        char text[200];
        size_t length = (size_t)g_rand_int_range(random, 0, sizeof(text));

        /* A NUL, the alphabet's last byte, is one of them. */
        for (size_t j = 0; j < length; j++)
            text[j] = alphabet[g_rand_int_range(random, 0, sizeof(alphabet))];
        ck_assert_int_eq(parse(&config, text, length) == 0, reported->len == 0);
        wb_config_deinit(&config);
        ck_assert(g_utf8_validate(reported->str, -1, NULL));
    }
}
END_TEST

START_TEST(a_long_line_is_reported_shortened)
{
    g_autoptr(GString) text = g_string_new("[snapshots]\n");
    struct wb_config config;

    for (int i = 0; i < 5000; i++)
        g_string_append(text, "\xc3\xa4");
    ck_assert_int_eq(parse(&config, text->str, text->len), -EINVAL);
    ck_assert(g_utf8_validate(reported->str, -1, NULL));
    g_string_append(text, " = 7");
    ck_assert_int_eq(parse(&config, text->str, text->len), -EINVAL);
    ck_assert_uint_lt(reported->len, 300);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("config");
    TCase *tcase = tcase_create("config");
    SRunner *runner;
    int failed;

    reported = g_string_new(NULL);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, test_packing_and_retention_are_found_separately);
    tcase_add_test(tcase, an_empty_file_means_no_snapshots);
    tcase_add_test(tcase, all_keys_are_understood);
    tcase_add_test(tcase, test_defaults_and_examples_are_valid);
    tcase_add_test(tcase, the_template_is_right_and_so_are_its_examples);
    tcase_add_test(tcase, retention_is_understood);
    tcase_add_loop_test(tcase, each_mistake_is_reported_with_its_place, 0, G_N_ELEMENTS(bad_texts));
    tcase_add_test(tcase, intervals_are_ages);
    tcase_add_test(tcase, any_bytes_are_survived);
    tcase_add_test(tcase, a_long_line_is_reported_shortened);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    g_string_free(reported, TRUE);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

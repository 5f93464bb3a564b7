/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What a user says in `wayback.conf`: text to settings. No file is opened here and no clock read.
 * wayback.conf(5) is the text for people. Not known to the format of the store: it is the user's.
 */

#include "format/format.h"
#include "policy/compaction.h"
#include "policy/config_text.h"
#include "policy/policy.h"
#include "policy/recording.h"
#include <stdbool.h>
#include <stdint.h>

/* A file longer than this is none of ours. */
#define WB_CONFIG_SIZE_MAX (1u << 20)

/* The kinds of automatic snapshots. */
enum wb_period {
    WB_EVERY,
    WB_HOURLY,
    WB_DAILY,
    WB_WEEKLY,
    WB_MONTHLY,
    WB_PERIODS,
};

#define WB_KEEP_MAX 10000
#define WB_EVERY_MAX 86400

struct wb_schedule {
    struct {
        bool set;       /* named in the file: else none is made, and existing ones remain */
        unsigned keep;  /* so many, the newest ones */
    } periods[WB_PERIODS];
    unsigned every;     /* seconds between those of WB_EVERY, 1 to WB_EVERY_MAX */
    unsigned at;        /* minutes after midnight: when a day ends for WB_DAILY and longer ones */
};

/* Sections that may contain a key. */
enum { WB_IN_SNAPSHOTS = 1, WB_IN_HISTORY = 2, WB_IN_PATH = 4 };

struct wb_config_parser;

/*
 * A key: how it is read, and all its texts. In `help` and `manual`, a pair of * encloses bold text. Each line of
 * `manual` is a paragraph, but the first continues the one of `help`; a line with a tab is a value and its meaning.
 */
struct wb_config_key {
    const char *name;
    unsigned sections;
    void (*take)(struct wb_config_parser *parser, const struct wb_config_line *line);
    const char *syntax;  /* of the value: "COUNT", "full | name | none" */
    const char *allowed; /* the same in words, for the message about a wrong value; NULL: `take` has its own */
    const char *initial; /* the default; NULL: none */
    const char *example; /* a value for that message; NULL: none */
    const char *help;    /* its meaning in a sentence: for --check-config and wayback.conf(5) */
    const char *manual;  /* the rest, for wayback.conf(5); NULL: nothing */
    const char *sample;  /* its lines in a new file: a comment, and the key; NULL: none */
};

/* In the order of a new file and of messages that list the keys; `name` is NULL at the end. */
extern const struct wb_config_key wb_config_keys[];

/* A line of the file that sets a key. */
struct wb_config_setting {
    const struct wb_config_key *key;
    char *section, *value;
    unsigned line;
};

struct wb_config {
    GArray *settings; /* struct wb_config_setting, in their order; NULL: there is no file */
    struct wb_schedule snapshots;
    struct wb_compaction compaction;
    struct wb_recording_rules recording;
    struct wb_policy policy;
    enum wb_commands commands; /* how much of a command line is recorded */
    unsigned user_snapshots;   /* so many may each user have who is neither root nor runs the daemon */
};

/*
 * Reads all of it and complains of each mistake. 0, or -EINVAL where there was any: *ret then holds what
 * was understood, to be thrown away. wb_config_deinit in any case.
 */
int wb_config_parse(struct wb_config *ret, const char *text, size_t length, wb_config_complain complain,
                    void *data);

/* What holds where nothing is said. */
void wb_config_init(struct wb_config *config);
void wb_config_deinit(struct wb_config *config);

/* "hourly": the key in the file, and what names of such snapshots begin with. */
const char *wb_period_name(enum wb_period period);

/* "full": the value of the key `commands`. */
const char *wb_commands_name(enum wb_commands commands);

/* The file of a new store: its settings, and a comment for each key. g_free. */
char *wb_config_template(void);

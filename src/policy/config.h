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
#define WB_USER_SNAPSHOTS 1024

struct wb_schedule {
    struct {
        bool set;       /* named in the file: else none is made, and existing ones remain */
        unsigned keep;  /* so many, the newest ones */
    } periods[WB_PERIODS];
    unsigned every;     /* seconds between those of WB_EVERY, 1 to WB_EVERY_MAX */
    unsigned at;        /* minutes after midnight: when a day ends for WB_DAILY and longer ones */
};

struct wb_config {
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

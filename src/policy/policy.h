/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The settings of retention: how long which versions of which paths are kept, and how much space all of them may take.
 * wayback.conf(5) is the text for people, `policy/config_policy` reads it, `policy/decide` applies it to one file.
 */

#include "wayback/pattern.h"
#include <glib.h>
#include <stdint.h>

#define WB_FOREVER INT64_MAX
#define WB_THIN_MAX 16
/* A larger number means no limit. */
#define WB_VERSIONS_MAX 1000000

/* The retention settings of one file. */
struct wb_retention {
    bool aged;      /* keep or thin was set: versions that they do not hold may be removed */
    int64_t keep;   /* ns: a version that showed less than that ago stays; WB_FOREVER; 0: not said */
    unsigned thin_count;
    struct {
        int64_t step, span; /* ns: the last version of each `step` stays for `span`. Both rise */
    } thin[WB_THIN_MAX];
    uint32_t least; /* so many, the newest ones, stay; the present is one of them. 0: not said */
    uint32_t most;  /* beside what `keep` and pins hold; 0: not said */
};

enum wb_retention_key { WB_RETENTION_KEEP, WB_RETENTION_THIN, WB_RETENTION_VERSIONS, WB_RETENTION_KEYS };

/* A section with patterns, or what [history] says of everything. */
struct wb_policy_rule {
    char *title;                  /* `path "*.o"`, as it was written; NULL: [history] */
    unsigned line;
    struct wb_patterns *patterns; /* NULL: everything */
    struct wb_retention retention;
    struct {
        unsigned line, column;    /* 0: not said */
    } said[WB_RETENTION_KEYS];
};

/* Room: so many bytes, or a share of the device; both 0: no limit. */
struct wb_room {
    uint64_t bytes;
    unsigned percent;
    bool hard; /* max-size: where only protected history is left, the oldest of that is deleted, too */
};

struct wb_policy {
    struct wb_policy_rule everything;
    GPtrArray *rules; /* those with patterns, in their order; NULL: none */
    struct wb_room max_size, reserve;
    struct wb_room user_max; /* of the changes of each user but root */
};

void wb_policy_init(struct wb_policy *policy);
void wb_policy_deinit(struct wb_policy *policy);

/* A new rule behind the others. */
struct wb_policy_rule *wb_policy_add(struct wb_policy *policy, const char *title, unsigned line);

/* What holds for a path: the last rule that it matches, else what is said of everything. Nothing is taken from
 * any other rule. */
const struct wb_policy_rule *wb_policy_find(const struct wb_policy *policy, const char *path, bool is_directory);

/* No state older than this is wanted by anything but a snapshot, of no path: ns; WB_FOREVER: there is no such age. */
int64_t wb_policy_reach(const struct wb_policy *policy);

/* The age at which no state is wanted any more of the paths for which `retention` holds, and the shortest such age of
 * all rules: ns; WB_FOREVER: there is none. */
int64_t wb_policy_shortest_reach(const struct wb_policy *policy);
int64_t wb_retention_reach(const struct wb_retention *retention);
/* The same if space is low: history without a set age may be removed at once. */
int64_t wb_policy_shortest_hold(const struct wb_policy *policy);
int64_t wb_retention_hold(const struct wb_retention *retention);

/* If space is low: states older than this may be removed, since no rule holds any; ns, WB_FOREVER: none may. History
 * without a set age may be removed at once. */
int64_t wb_policy_hold(const struct wb_policy *policy);

/* The least age at which a version of anything may go; ns, WB_FOREVER: no age lets anything go. */
int64_t wb_policy_least(const struct wb_policy *policy);

/* max-size or reserve was set: expired versions are kept while space permits. */
bool wb_policy_has_room(const struct wb_policy *policy);

bool wb_policy_says_something(const struct wb_policy *policy);

/* In words: "keep 30d; thin 1h:2d 1d:30d; at least 5, at most 100 versions". g_free. */
char *wb_retention_print(const struct wb_retention *retention);
char *wb_room_print(const struct wb_room *room);
/* "30d", "1h30m", "1y"; g_free. */
char *wb_span_print(int64_t span);
/* The same without years, as wb_time_parse has it. */
char *wb_span_print_age(int64_t span);

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "common/changes.h"
#include "common/cli.h"
#include "common/json.h"
#include "common/text.h"
#include "vweb/request.h"
#include <errno.h>
#include <microhttpd.h>
#include <string.h>

/* How many changes there were, by time and by program, and the list of them. */

#define CHANGES_MAX 2000000
#define BUCKETS_MAX 1000
#define PROGRAMS_MAX 12 /* the others are one sum */
#define LOG_MAX 1000
#define LOG_DEFAULT 200

/* The changes of one program. */
struct program {
    char *name;
    guint64 count;
    guint *buckets;
};

struct histogram {
    int64_t begin, width; /* ns */
    guint length;
    guint64 total;
    GHashTable *programs; /* name -> struct program */
    GPtrArray *sorted;
    bool complete;
};

static void program_free(void *data)
{
    struct program *program = data;

    g_free(program->name);
    g_free(program->buckets);
    g_free(program);
}

static void histogram_clear(struct histogram *histogram)
{
    if (histogram->sorted)
        g_ptr_array_unref(histogram->sorted);
    if (histogram->programs)
        g_hash_table_unref(histogram->programs);
}
#define _cleanup_histogram_ __attribute__((cleanup(histogram_clear)))

static bool is_gap(const struct wb_change *change)
{
    return change->entry->flags & WB_CONTROL_CHANGE_GAP;
}

static void count(struct histogram *histogram, const struct wb_change *change)
{
    g_autofree char *name = wb_text_program(change->command);
    struct program *program = g_hash_table_lookup(histogram->programs, name);
    int64_t at = (change->entry->when - histogram->begin) / histogram->width;

    if (!program) {
        program = g_new0(struct program, 1);
        program->name = g_strdup(name);
        program->buckets = g_new0(guint, histogram->length);
        g_hash_table_insert(histogram->programs, program->name, program);
    }
    program->count++;
    histogram->total++;
    program->buckets[CLAMP(at, 0, (int64_t)histogram->length - 1)]++;
}

/* The most active first. */
static gint by_count(gconstpointer a, gconstpointer b)
{
    const struct program *one = *(const struct program *const *)a;
    const struct program *other = *(const struct program *const *)b;

    if (one->count != other->count)
        return one->count < other->count ? 1 : -1;
    return strcmp(one->name, other->name);
}

static int read_changes(const struct web *web, const char *path, int64_t since, int64_t until,
                        struct histogram *histogram)
{
    struct wb_change_walk_options options = {.since = since, .until = until, .no_wait = true};
    _cleanup_change_walk_ struct wb_change_walk *walk = wb_change_walk_new(web->place->mount, path, &options);
    GHashTableIter iter;
    struct wb_change change;
    gpointer program;
    int r = 0;

    histogram->programs = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, program_free);
    while (histogram->total < CHANGES_MAX && g_hash_table_size(histogram->programs) < 10000 &&
           (r = wb_change_walk_next(walk, &change)) == 0)
        if (!is_gap(&change))
            count(histogram, &change);
    histogram->complete = r == 1;
    histogram->sorted = g_ptr_array_new();
    g_hash_table_iter_init(&iter, histogram->programs);
    while (g_hash_table_iter_next(&iter, NULL, &program))
        g_ptr_array_add(histogram->sorted, program);
    g_ptr_array_sort(histogram->sorted, by_count);
    return MIN(r, 0);
}

static void add_buckets(JsonBuilder *builder, const guint *buckets, guint length)
{
    json_builder_set_member_name(builder, "buckets");
    json_builder_begin_array(builder);
    for (guint i = 0; i < length; i++)
        json_builder_add_int_value(builder, buckets[i]);
    json_builder_end_array(builder);
}

static void add_programs(JsonBuilder *builder, const struct histogram *histogram)
{
    g_autofree guint *others = g_new0(guint, histogram->length);
    guint64 others_count = 0;

    json_builder_set_member_name(builder, "programs");
    json_builder_begin_array(builder);
    for (guint i = 0; i < histogram->sorted->len; i++) {
        const struct program *program = histogram->sorted->pdata[i];

        if (i < PROGRAMS_MAX) {
            json_builder_begin_object(builder);
            web_add_text(builder, "program", program->name);
            wb_json_int(builder, "count", (int64_t)program->count);
            add_buckets(builder, program->buckets, histogram->length);
            json_builder_end_object(builder);
            continue;
        }
        others_count += program->count;
        for (guint j = 0; j < histogram->length; j++)
            others[j] += program->buckets[j];
    }
    json_builder_end_array(builder);
    json_builder_set_member_name(builder, "others");
    json_builder_begin_object(builder);
    wb_json_int(builder, "count", (int64_t)others_count);
    add_buckets(builder, others, histogram->length);
    json_builder_end_object(builder);
}

/* changes?path=PATH&since=TIME&until=TIME[&bucket=SECONDS] */
void web_get_changes(const struct web_request *request, struct web_reply *reply)
{
    _cleanup_histogram_ struct histogram histogram = {0};
    g_autoptr(JsonBuilder) builder = NULL;
    g_autofree char *path = NULL;
    int64_t now = wb_mount_now(request->web->place->mount), since, until, bucket;
    int r;

    if (!web_argument_path(request, reply, &path) ||
        !web_argument_time(request, reply, "since", now - 86400 * WB_WHEN_SECOND, &since) ||
        !web_argument_time(request, reply, "until", now, &until) ||
        !web_argument_number(request, reply, "bucket", 1, 366 * 86400, 3600, &bucket))
        return;
    histogram.width = bucket * WB_WHEN_SECOND;
    histogram.begin = wb_text_period(since, histogram.width);
    if (since <= 0 || until < since || (until - histogram.begin) / histogram.width >= BUCKETS_MAX) {
        web_reply_error(reply, MHD_HTTP_BAD_REQUEST, "usage", "'since' to 'until' must have 1 to %d buckets",
                        BUCKETS_MAX);
        return;
    }
    histogram.length = (guint)((until - histogram.begin) / histogram.width) + 1;
    r = read_changes(request->web, path, since, until, &histogram);
    if (r < 0) {
        web_reply_errno(reply, r, r == -EAGAIN ? "the list of changes is being prepared" : NULL);
        return;
    }
    builder = web_reply_begin();
    web_add_text(builder, "path", web_path_below(request->web, path));
    wb_json_time(builder, "since", since);
    wb_json_time(builder, "until", until);
    wb_json_time(builder, "begin", histogram.begin);
    wb_json_int(builder, "bucket", bucket);
    wb_json_int(builder, "count", (int64_t)histogram.total);
    wb_json_bool(builder, "complete", histogram.complete);
    add_programs(builder, &histogram);
    web_reply_end(reply, builder);
}

/* ---- the next change ---------------------------------------------------------------------------------- */

/* next?path=PATH&epoch=TIME: the first change after a time. */
void web_get_next(const struct web_request *request, struct web_reply *reply)
{
    g_autoptr(JsonBuilder) builder = NULL;
    g_autofree char *path = NULL;
    struct wb_change_walk_options options = {.no_wait = true};
    struct wb_change change;
    int64_t next = 0, seen = 0;
    int r = 0;

    if (!web_argument_path(request, reply, &path) || !web_argument_time(request, reply, "epoch", 0, &options.since))
        return;
    options.since++;
    _cleanup_change_walk_ struct wb_change_walk *walk =
        wb_change_walk_new(request->web->place->mount, path, &options);
    while (seen++ < CHANGES_MAX && (r = wb_change_walk_next(walk, &change)) == 0)
        next = change.entry->when;
    if (r < 0) {
        web_reply_errno(reply, r, r == -EAGAIN ? "the list of changes is being prepared" : NULL);
        return;
    }
    builder = web_reply_begin();
    wb_json_time(builder, "next", next);
    web_reply_end(reply, builder);
}

/* ---- the list ---------------------------------------------------------------------------------------- */

static void add_change(JsonBuilder *builder, const struct wb_change *change)
{
    g_autofree char *user = web_user_name(change->uid);

    json_builder_begin_object(builder);
    wb_json_when(builder, change->entry->when);
    wb_json_string(builder, "op", change->op);
    web_add_text(builder, "path", change->path);
    if (*change->other)
        web_add_text(builder, "other", change->other);
    if (*change->detail)
        web_add_text(builder, "detail", change->detail);
    wb_json_bool(builder, "name_known", !(change->entry->flags & WB_CONTROL_CHANGE_UNKNOWN));
    if (change->entry->actor != 0) {
        wb_json_string(builder, "user", user);
        wb_json_int(builder, "pid", change->pid);
        web_add_text(builder, "command", change->command);
    }
    json_builder_end_object(builder);
}

static bool is_by(const struct wb_change *change, const char *program)
{
    g_autofree char *name = program ? wb_text_program(change->command) : NULL;

    return !program || (!is_gap(change) && strcmp(name, program) == 0);
}

/* log?path=PATH[&since=TIME][&until=TIME][&program=NAME][&limit=N]: newest first. */
void web_get_log(const struct web_request *request, struct web_reply *reply)
{
    g_autoptr(JsonBuilder) builder = NULL;
    g_autofree char *path = NULL;
    g_autofree char *program = web_argument(request, "program");
    struct wb_change_walk_options options = {.no_wait = true};
    struct wb_change change;
    int64_t limit, found = 0, seen = 0;
    int r = 0;

    if (!web_argument_path(request, reply, &path) ||
        !web_argument_time(request, reply, "since", 0, &options.since) ||
        !web_argument_time(request, reply, "until", 0, &options.until) ||
        !web_argument_number(request, reply, "limit", 1, LOG_MAX, LOG_DEFAULT, &limit))
        return;
    _cleanup_change_walk_ struct wb_change_walk *walk =
        wb_change_walk_new(request->web->place->mount, path, &options);
    builder = web_reply_begin();
    json_builder_set_member_name(builder, "changes");
    json_builder_begin_array(builder);
    while (seen++ < CHANGES_MAX && (r = wb_change_walk_next(walk, &change)) == 0) {
        if (!is_by(&change, program))
            continue;
        if (found++ == limit)
            break;
        add_change(builder, &change);
    }
    json_builder_end_array(builder);
    wb_json_bool(builder, "has_more", r == 0);
    if (r < 0)
        web_reply_errno(reply, r, r == -EAGAIN ? "the list of changes is being prepared" : NULL);
    else
        web_reply_end(reply, builder);
}

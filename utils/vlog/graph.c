/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vlog.h"
#include "common/cli.h"
#include "common/json.h"
#include "common/pager.h"
#include "common/table.h"
#include "common/text.h"
#include <inttypes.h>
#include <string.h>

/* A bar for each hour of up to two days, else for longer periods; empty periods between are one line. */

#define MINUTE (60 * WB_WHEN_SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)
#define BAR_WIDTH 30
#define PROGRAMS_SHOWN 3

/* The changes of one minute: periods are made of minutes once it is known how long the history is. */
struct period {
    int64_t begin;
    uint64_t count;
    GHashTable *programs; /* name -> struct program */
};

struct program {
    char *name;
    uint64_t count;
};

static void program_free(void *data)
{
    struct program *program = data;

    g_free(program->name);
    g_free(program);
}

static void period_free(void *data)
{
    struct period *period = data;

    g_hash_table_unref(period->programs);
    g_free(period);
}

/* The last one is the oldest, because changes come newest first. */
static struct period *period_at(GPtrArray *periods, int64_t begin)
{
    struct period *last = periods->len > 0 ? periods->pdata[periods->len - 1] : NULL;

    if (last && last->begin == begin)
        return last;
    last = g_new0(struct period, 1);
    last->begin = begin;
    last->programs = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, program_free);
    g_ptr_array_add(periods, last);
    return last;
}

static void add(struct period *period, const char *name, uint64_t count)
{
    struct program *program = g_hash_table_lookup(period->programs, name);

    if (!program) {
        program = g_new0(struct program, 1);
        program->name = g_strdup(name);
        g_hash_table_insert(period->programs, program->name, program);
    }
    program->count += count;
    period->count += count;
}

/* Joins minutes to periods of `width`. */
static GPtrArray *join(const GPtrArray *minutes, int64_t width)
{
    GPtrArray *periods = g_ptr_array_new_with_free_func(period_free);

    for (guint i = 0; i < minutes->len; i++) {
        const struct period *minute = minutes->pdata[i];
        struct period *period = period_at(periods, wb_text_period(minute->begin, width));
        const struct program *program;
        GHashTableIter iter;

        g_hash_table_iter_init(&iter, minute->programs);
        while (g_hash_table_iter_next(&iter, NULL, (gpointer *)&program))
            add(period, program->name, program->count);
    }
    return periods;
}

static int64_t width_of(const GPtrArray *minutes)
{
    static const int64_t widths[] = {HOUR, DAY, 7 * DAY};
    const struct period *newest = minutes->pdata[0], *oldest = minutes->pdata[minutes->len - 1];
    int64_t range = newest->begin - oldest->begin;

    if (range < HOUR)
        return MINUTE;
    return range <= 2 * DAY ? widths[0] : range <= 90 * DAY ? widths[1] : widths[2];
}

/* The most active first. */
static gint by_count(gconstpointer a, gconstpointer b)
{
    const struct program *one = *(const struct program *const *)a, *other = *(const struct program *const *)b;

    if (one->count != other->count)
        return one->count < other->count ? 1 : -1;
    return strcmp(one->name, other->name);
}

static GPtrArray *programs_of(const struct period *period)
{
    GPtrArray *sorted = g_ptr_array_new();
    GHashTableIter iter;
    gpointer program;

    g_hash_table_iter_init(&iter, period->programs);
    while (g_hash_table_iter_next(&iter, NULL, &program))
        g_ptr_array_add(sorted, program);
    g_ptr_array_sort(sorted, by_count);
    return sorted;
}

/* "cp 20, sed 4, 2 others" */
static char *programs_text(const struct period *period)
{
    g_autoptr(GPtrArray) programs = programs_of(period);
    GString *text = g_string_new(NULL);

    for (guint i = 0; i < MIN(programs->len, PROGRAMS_SHOWN); i++) {
        const struct program *program = programs->pdata[i];
        g_autofree char *name = wb_text_printable(program->name);

        g_string_append_printf(text, "%s%s %" PRIu64, i > 0 ? ", " : "", name, program->count);
    }
    if (programs->len > PROGRAMS_SHOWN)
        g_string_append_printf(text, ", %u more", programs->len - PROGRAMS_SHOWN);
    return g_string_free(text, FALSE);
}

static void print_rows(const GPtrArray *periods, int64_t width)
{
    static const struct wb_column columns[] = {{"FROM", 0}, {"CHANGES", 1}, {"", 0}, {"BY", 0}};
    struct wb_table *table = wb_table_new(stdout, columns, G_N_ELEMENTS(columns));
    int64_t newer = 0;
    uint64_t most = 0;

    for (guint i = 0; i < periods->len; i++)
        most = MAX(most, ((const struct period *)periods->pdata[i])->count);
    for (guint i = 0; i < periods->len; i++) {
        const struct period *period = periods->pdata[i];
        g_autofree char *bar = wb_text_bar(period->count, most, BAR_WIDTH);
        g_autofree char *colored = g_strconcat(wb_color(WB_COLOR_CYAN), bar, wb_color(WB_COLOR_OFF), NULL);
        g_autofree char *programs = programs_text(period);
        char time[WB_WHEN_TEXT_MAX], count[WB_TEXT_SIZE_MAX];

        wb_text_time(period->begin, false, time);
        time[width >= DAY ? strlen("2026-11-20") : strlen("2026-11-20 14:03")] = '\0';
        g_snprintf(count, sizeof(count), "%" PRIu64, period->count);
        /* A period of another length is one in which the clock was set, twice a year. */
        if (newer > 0 && newer - period->begin > width + HOUR)
            wb_table_add(table, (const char *const[]){"...", "0", "", ""});
        wb_table_add(table, (const char *const[]){time, count, colored, programs});
        newer = period->begin;
    }
    wb_table_free(table);
}

static void print_json(const GPtrArray *periods, int64_t width)
{
    for (guint i = 0; i < periods->len; i++) {
        const struct period *period = periods->pdata[i];
        g_autoptr(GPtrArray) programs = programs_of(period);
        g_autoptr(JsonBuilder) builder = json_builder_new();

        json_builder_begin_object(builder);
        wb_json_when(builder, period->begin);
        wb_json_int(builder, "seconds", width / WB_WHEN_SECOND);
        wb_json_int(builder, "changes", (int64_t)period->count);
        json_builder_set_member_name(builder, "programs");
        json_builder_begin_array(builder);
        for (guint j = 0; j < programs->len; j++) {
            const struct program *program = programs->pdata[j];

            json_builder_begin_object(builder);
            wb_json_string(builder, "program", program->name);
            wb_json_int(builder, "changes", (int64_t)program->count);
            json_builder_end_object(builder);
        }
        json_builder_end_array(builder);
        json_builder_end_object(builder);
        wb_json_entry(builder);
    }
}

int graph_show(struct wb_change_walk *walk, bool json, uint64_t *count)
{
    g_autoptr(GPtrArray) minutes = g_ptr_array_new_with_free_func(period_free);
    g_autoptr(GPtrArray) periods = NULL;
    struct wb_change change;
    int64_t width;
    int r = 0;

    *count = 0;
    while (!wb_cli_interrupted() && (r = wb_change_walk_next(walk, &change)) == 0) {
        g_autofree char *name = wb_text_program(change.command);

        if (change.entry->flags & WB_CONTROL_CHANGE_GAP)
            continue;
        add(period_at(minutes, wb_text_period(change.entry->when, MINUTE)), name, 1);
        (*count)++;
    }
    if (minutes->len == 0)
        return r;
    width = width_of(minutes);
    periods = join(minutes, width);
    if (json)
        print_json(periods, width);
    else
        print_rows(periods, width);
    return r;
}

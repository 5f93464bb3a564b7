/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vdf.h"
#include "common/cli.h"
#include "common/json.h"
#include "common/pager.h"
#include "common/snapshots.h"
#include "common/table.h"
#include "common/text.h"
#include "wayback/when.h"
#include <inttypes.h>
#include <string.h>

#define DAY (86400 * WB_WHEN_SECOND)
#define DAYS_MAX 36500
#define BAR_WIDTH 24

static const char *const kind_words[WB_CONTROL_USAGE_KINDS] = {
    "undo logs", "catalogs", "images", "deleted files", "timeline", "snapshots", "other"};
static const char *const kind_keys[WB_CONTROL_USAGE_KINDS] = {
    "undo", "catalogs", "images", "deleted", "timeline", "snapshots", "other"};
static const char *const age_words[WB_CONTROL_USAGE_AGES] = {
    "last hour", "last day", "last week", "last month", "last year", "older"};
static const char *const age_keys[WB_CONTROL_USAGE_AGES] = {"hour", "day", "week", "month", "year", "older"};

/* ---- what follows ------------------------------------------------------------------------------------ */

static void add_sum(struct wb_control_usage_sum *to, const struct wb_control_usage_sum *one)
{
    to->files += one->files;
    to->bytes += one->bytes;
    to->stored += one->stored;
    to->disk += one->disk;
    to->shared += one->shared;
}

void outlook_of(const struct usage *usage, struct outlook *ret)
{
    const struct wb_control_usage *sums = &usage->sums;
    int64_t age = sums->now > sums->created ? sums->now - sums->created : 0;
    double days = CLAMP((double)age / (double)DAY, 1, 7);

    *ret = (struct outlook){.days_left = -1};
    for (unsigned i = 0; i < WB_CONTROL_USAGE_KINDS; i++)
        add_sum(&ret->all, &sums->kinds[i]);
    ret->logs_bytes = sums->kinds[WB_CONTROL_USAGE_UNDO].bytes + sums->kinds[WB_CONTROL_USAGE_CATALOGS].bytes;
    ret->logs_stored = sums->kinds[WB_CONTROL_USAGE_UNDO].stored + sums->kinds[WB_CONTROL_USAGE_CATALOGS].stored;
    ret->day = sums->ages[0] + sums->ages[1];
    ret->week = ret->day + sums->ages[2];
    ret->rate = (uint64_t)((double)MIN(ret->week, (uint64_t)INT64_MAX / 2) / days);
    /* A date a hundred years ahead is of no use. */
    if (ret->rate > 0 && sums->free / ret->rate < DAYS_MAX && sums->now < INT64_MAX - DAYS_MAX * DAY)
        ret->days_left = (int64_t)(sums->free / ret->rate);
}

/* By what they take, the largest first. */
static int by_size(const void *a, const void *b)
{
    const struct wb_control_usage_dir *x = *(const struct wb_control_usage_dir *const *)a;
    const struct wb_control_usage_dir *y = *(const struct wb_control_usage_dir *const *)b;

    if (x->disk != y->disk)
        return x->disk < y->disk ? 1 : -1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return strcmp(x->path, y->path);
}

static GPtrArray *sorted(const struct usage *usage)
{
    GPtrArray *dirs = g_ptr_array_sized_new(usage->dirs->len);

    for (guint i = 0; i < usage->dirs->len; i++)
        g_ptr_array_add(dirs, usage->dirs->pdata[i]);
    g_ptr_array_sort(dirs, by_size);
    return dirs;
}

/* ---- text -------------------------------------------------------------------------------------------- */

static const char *size_text(const struct show_usage *show, uint64_t bytes, char text[WB_TEXT_SIZE_MAX])
{
    if (!show->bytes)
        return wb_text_size(bytes, text);
    g_snprintf(text, WB_TEXT_SIZE_MAX, "%" PRIu64, bytes);
    return text;
}

static void time_text(int64_t when, char text[WB_WHEN_TEXT_MAX])
{
    char *zone;

    wb_when_print(when, 0, text);
    zone = strrchr(text, ' '); /* the zone is the reader's own */
    if (zone && zone > strchr(text, ' '))
        *zone = '\0';
}

/* With --plot, a bar stands before the last cell. */
static void add_row(struct wb_table *table, const struct show_usage *show, uint64_t value, uint64_t most,
                    const char *const *cells, unsigned count)
{
    const char *row[WB_TABLE_COLUMNS_MAX];
    g_autofree char *bar = wb_text_bar(value, most, BAR_WIDTH);
    g_autofree char *colored = g_strconcat(wb_color(WB_COLOR_CYAN), bar, wb_color(WB_COLOR_OFF), NULL);

    memcpy(row, cells, (count - 1) * sizeof(*cells));
    row[count - 1] = colored;
    row[show->plot ? count : count - 1] = cells[count - 1];
    wb_table_add(table, row);
}

static struct wb_table *new_table(FILE *out, const struct show_usage *show, const struct wb_column *columns,
                                  unsigned count)
{
    struct wb_column all[WB_TABLE_COLUMNS_MAX] = {0};

    memcpy(all, columns, (count - 1) * sizeof(*columns));
    all[count - 1] = (struct wb_column){"", 0};
    all[show->plot ? count : count - 1] = columns[count - 1];
    return wb_table_new(out, all, show->plot ? count + 1 : count);
}

static void add_kind(struct wb_table *table, const struct show_usage *show, const char *word,
                     const struct wb_control_usage_sum *sum, uint64_t most)
{
    char files[WB_TEXT_SIZE_MAX], disk[WB_TEXT_SIZE_MAX], bytes[WB_TEXT_SIZE_MAX];

    g_snprintf(files, sizeof(files), "%" PRIu64, sum->files);
    add_row(table, show, sum->disk, most,
            (const char *const[]){size_text(show, sum->disk, disk), size_text(show, sum->bytes, bytes), files, word},
            4);
}

static void show_kinds(FILE *out, const struct usage *usage, const struct show_usage *show,
                       const struct outlook *outlook)
{
    static const struct wb_column columns[] = {{"DISK", 1}, {"BYTES", 1}, {"FILES", 1}, {"WHAT", 0}};
    struct wb_table *table = new_table(out, show, columns, G_N_ELEMENTS(columns));

    for (unsigned i = 0; i < WB_CONTROL_USAGE_KINDS; i++)
        if (usage->sums.kinds[i].files > 0 || usage->sums.kinds[i].disk > 0)
            add_kind(table, show, kind_words[i], &usage->sums.kinds[i], outlook->all.disk);
    add_kind(table, show, "in all", &outlook->all, outlook->all.disk);
    wb_table_free(table);
}

static void show_ages(FILE *out, const struct usage *usage, const struct show_usage *show)
{
    static const struct wb_column columns[] = {{"BYTES", 1}, {"OF CHANGES", 0}, {"AND OLDER", 1}, {"FREED BY", 0}};
    unsigned count = show->may_free ? 4 : 2;
    struct wb_table *table = new_table(out, show, columns, count);
    char bytes[WB_TEXT_SIZE_MAX], older[WB_TEXT_SIZE_MAX];
    uint64_t most = 0, sum = 0;

    for (unsigned i = 0; i < WB_CONTROL_USAGE_AGES; i++)
        most = MAX(most, usage->sums.ages[i]);
    for (unsigned i = 0; i < WB_CONTROL_USAGE_AGES; i++)
        sum += usage->sums.ages[i];
    for (unsigned i = 0; i < WB_CONTROL_USAGE_AGES; i++) {
        g_autofree char *command = free_age(show, i);
        g_autofree char *shown = command ? wb_text_printable(command) : NULL;

        if (usage->sums.ages[i] > 0)
            add_row(table, show, usage->sums.ages[i], most,
                    (const char *const[]){size_text(show, usage->sums.ages[i], bytes), age_words[i],
                                          size_text(show, sum, older), shown}, count);
        sum -= usage->sums.ages[i];
    }
    wb_table_free(table);
}

/* `dirs`: or files. */
static void show_items(FILE *out, const GPtrArray *dirs, const struct show_usage *show, bool are_dirs)
{
    const struct wb_column columns[] = {{"DISK", 1}, {"BYTES", 1}, {"NEWEST", 0}, {are_dirs ? "DIRECTORY" : "FILE", 0},
                                        {"FREED BY", 0}};
    unsigned count = show->may_free ? 5 : 4;
    struct wb_table *table = new_table(out, show, columns, count);
    uint64_t most = dirs->len > 0 ? ((const struct wb_control_usage_dir *)dirs->pdata[0])->disk : 0;

    for (guint i = 0; i < dirs->len; i++) {
        const struct wb_control_usage_dir *dir = dirs->pdata[i];
        g_autofree char *name = wb_text_printable(*dir->path ? dir->path : ".");
        g_autofree char *command = free_path(show, dir->path, are_dirs);
        g_autofree char *shown = command ? wb_text_printable(command) : NULL;
        char disk[WB_TEXT_SIZE_MAX], bytes[WB_TEXT_SIZE_MAX], newest[WB_WHEN_TEXT_MAX] = "-";

        if (dir->newest)
            time_text(dir->newest, newest);
        add_row(table, show, dir->disk, most,
                (const char *const[]){size_text(show, dir->disk, disk), size_text(show, dir->bytes, bytes), newest,
                                      name, shown}, count);
    }
    wb_table_free(table);
}

static void show_programs(FILE *out, const struct usage *usage, const struct show_usage *show)
{
    static const struct wb_column columns[] = {{"BYTES", 1}, {"NEWEST", 0}, {"USER", 0}, {"PROGRAM", 0},
                                               {"LISTED BY", 0}};
    struct wb_table *table = new_table(out, show, columns, G_N_ELEMENTS(columns));
    uint64_t most = 0;

    for (guint i = 0; i < usage->programs->len; i++)
        most = MAX(most, ((const struct wb_control_usage_program *)usage->programs->pdata[i])->bytes);
    for (guint i = 0; i < usage->programs->len; i++) {
        const struct wb_control_usage_program *program = usage->programs->pdata[i];
        bool is_rest = program->kind == WB_CONTROL_USAGE_ITEM_REST;
        g_autofree char *name = wb_text_printable(*program->name ? program->name : "?");
        g_autofree char *command = is_rest ? NULL : list_program(show, program);
        g_autofree char *shown = command ? wb_text_printable(command) : NULL;
        char bytes[WB_TEXT_SIZE_MAX], newest[WB_WHEN_TEXT_MAX] = "-";

        if (program->newest)
            time_text(program->newest, newest);
        add_row(table, show, program->bytes, most,
                (const char *const[]){size_text(show, program->bytes, bytes), newest,
                                      is_rest ? "-" : wb_text_user(program->uid),
                                      is_rest ? "all others" : name, shown ?: ""}, G_N_ELEMENTS(columns));
    }
    wb_table_free(table);
}

/* The figures of vrm. */
static void show_freed(FILE *out, const struct usage *usage, const struct show_usage *show)
{
    char all[WB_TEXT_SIZE_MAX], history[WB_TEXT_SIZE_MAX], shared[WB_TEXT_SIZE_MAX];

    if (!usage->has_freed)
        return;
    fprintf(out, "%s would free %s, and %s --history %s", wb_cli_tool("vrm"), size_text(show, usage->freed.all, all),
            wb_cli_tool("vrm"),
            size_text(show, usage->freed.history, history));
    if (usage->freed.shared > 0)
        fprintf(out, "; up to %s more are in blocks shared between files",
                size_text(show, usage->freed.shared, shared));
    putc('\n', out);
}

/* Lines of words. */
static void show_gaps(FILE *out, const struct usage *usage)
{
    const struct wb_control_usage *sums = &usage->sums;
    char since[WB_WHEN_TEXT_MAX] = "the beginning", until[WB_WHEN_TEXT_MAX];

    if (sums->gaps == 0)
        return;
    if (sums->gaps_since > 0)
        time_text(sums->gaps_since, since);
    time_text(sums->gaps_until, until);
    fprintf(out, "Gaps: %" PRIu64 " files and directories have gaps in their history between %s and %s; %s lists "
            "them\n", sums->gaps, since, until, wb_cli_tool("vlog"));
}

static void show_rest(FILE *out, const struct usage *usage, const struct show_usage *show,
                      const struct outlook *outlook)
{
    const struct wb_control_usage *sums = &usage->sums;
    char one[WB_TEXT_SIZE_MAX], two[WB_TEXT_SIZE_MAX], three[WB_TEXT_SIZE_MAX];

    if (sums->packed > 0 && outlook->logs_stored < outlook->logs_bytes)
        fprintf(out, "Compaction: %" PRIu64 " logs are packed; all logs use %s instead of %s, which saves %s\n",
                sums->packed, size_text(show, outlook->logs_stored, one), size_text(show, outlook->logs_bytes, two),
                size_text(show, outlook->logs_bytes - MIN(outlook->logs_bytes, outlook->logs_stored), three));
    if (outlook->all.shared > 0)
        fprintf(out, "Shared with other files: %s of these\n",
                size_text(show, outlook->all.shared, one));
    fprintf(out, "Rate: %s in the last day, %s in the last week: %s per day\n", size_text(show, outlook->day, one),
            size_text(show, outlook->week, two), size_text(show, outlook->rate, three));
    fprintf(out, "Free on the store's file system: %s of %s", size_text(show, sums->free, one),
            size_text(show, sums->room, two));
    if (outlook->days_left >= 0) {
        char when[WB_WHEN_TEXT_MAX];

        time_text(sums->now + outlook->days_left * DAY, when);
        fprintf(out, "; at this rate, enough for %" PRId64 " days (%.10s)", outlook->days_left, when);
    }
    putc('\n', out);
    if (sums->damaged > 0)
        fprintf(out, "%" PRIu64 " files of the store could not be read completely; vfsck lists them\n", sums->damaged);
    show_gaps(out, usage);
    if (usage->flags & WB_CONTROL_USAGE_PART)
        fprintf(out, "Directories that you may not read, or could not at some time of their history, are left out\n");
}

static void show_lists(FILE *out, const struct usage *usage, const struct show_usage *show)
{
    g_autoptr(GPtrArray) dirs = sorted(usage);

    if (dirs->len > 0) {
        show_items(out, dirs, show, true);
        putc('\n', out);
    }
    if (usage->files->len > 0) {
        show_items(out, usage->files, show, false);
        putc('\n', out);
    }
    if (usage->programs->len > 0) {
        show_programs(out, usage, show);
        putc('\n', out);
    }
}

void show_usage_text(FILE *out, const struct usage *usage, const struct show_usage *show)
{
    g_autofree char *name = wb_text_printable(show->given);
    struct outlook outlook;
    char disk[WB_TEXT_SIZE_MAX], oldest[WB_WHEN_TEXT_MAX];

    outlook_of(usage, &outlook);
    fprintf(out, "%s%s%s: history uses %s", wb_color(WB_COLOR_YELLOW), name, wb_color(WB_COLOR_OFF),
            size_text(show, outlook.all.disk, disk));
    if (usage->sums.oldest > 0) {
        time_text(usage->sums.oldest, oldest);
        fprintf(out, " and reaches back to %s\n\n", oldest);
    } else {
        fprintf(out, "; no changes recorded\n\n");
    }
    show_kinds(out, usage, show, &outlook);
    putc('\n', out);
    show_ages(out, usage, show);
    putc('\n', out);
    if (show->has_dirs)
        show_lists(out, usage, show);
    show_rest(out, usage, show, &outlook);
    show_freed(out, usage, show);
    show_budget(out, usage, show, &outlook);
    show_users(out, usage, show);
}

/* ---- JSON -------------------------------------------------------------------------------------------- */

static void add_uint(JsonBuilder *builder, const char *key, uint64_t value)
{
    wb_json_int(builder, key, (int64_t)MIN(value, (uint64_t)INT64_MAX));
}

static void json_sum(JsonBuilder *builder, const struct wb_control_usage_sum *sum)
{
    add_uint(builder, "files", sum->files);
    add_uint(builder, "bytes", sum->bytes);
    add_uint(builder, "stored", sum->stored);
    add_uint(builder, "disk", sum->disk);
    add_uint(builder, "shared", sum->shared);
}

/* A command, or null. */
static void json_command(JsonBuilder *builder, const char *key, char *command)
{
    json_builder_set_member_name(builder, key);
    if (command)
        json_builder_add_string_value(builder, command);
    else
        json_builder_add_null_value(builder);
    g_free(command);
}

static void json_items(JsonBuilder *builder, const char *key, const GPtrArray *dirs, const struct show_usage *show,
                       bool are_dirs)
{
    json_builder_set_member_name(builder, key);
    json_builder_begin_array(builder);
    for (guint i = 0; i < dirs->len; i++) {
        const struct wb_control_usage_dir *dir = dirs->pdata[i];

        json_builder_begin_object(builder);
        wb_json_string(builder, "path", *dir->path ? dir->path : ".");
        add_uint(builder, "files", dir->files);
        add_uint(builder, "bytes", dir->bytes);
        add_uint(builder, "disk", dir->disk);
        add_uint(builder, "shared", dir->shared);
        wb_json_time(builder, "oldest", dir->oldest);
        wb_json_time(builder, "newest", dir->newest);
        json_command(builder, "free", free_path(show, dir->path, are_dirs));
        json_builder_end_object(builder);
    }
    json_builder_end_array(builder);
}

static void json_programs(JsonBuilder *builder, const struct usage *usage, const struct show_usage *show)
{
    json_builder_set_member_name(builder, "programs");
    json_builder_begin_array(builder);
    for (guint i = 0; i < usage->programs->len; i++) {
        const struct wb_control_usage_program *program = usage->programs->pdata[i];
        bool is_rest = program->kind == WB_CONTROL_USAGE_ITEM_REST;

        json_builder_begin_object(builder);
        wb_json_bool(builder, "others", is_rest);
        if (!is_rest) {
            wb_json_string(builder, "program", program->name);
            add_uint(builder, "uid", program->uid);
        }
        add_uint(builder, "bytes", program->bytes);
        wb_json_time(builder, "newest", program->newest);
        json_command(builder, "list", is_rest ? NULL : list_program(show, program));
        json_builder_end_object(builder);
    }
    json_builder_end_array(builder);
}

static void json_ages(JsonBuilder *builder, const struct usage *usage, const struct show_usage *show)
{
    json_builder_set_member_name(builder, "ages_free");
    json_builder_begin_object(builder);
    for (unsigned i = 0; i < WB_CONTROL_USAGE_AGES; i++)
        json_command(builder, age_keys[i], usage->sums.ages[i] > 0 ? free_age(show, i) : NULL);
    json_builder_end_object(builder);
}

static void json_kinds(JsonBuilder *builder, const struct usage *usage, const struct outlook *outlook)
{
    json_builder_set_member_name(builder, "kinds");
    json_builder_begin_object(builder);
    for (unsigned i = 0; i < WB_CONTROL_USAGE_KINDS; i++) {
        json_builder_set_member_name(builder, kind_keys[i]);
        json_builder_begin_object(builder);
        json_sum(builder, &usage->sums.kinds[i]);
        json_builder_end_object(builder);
    }
    json_builder_end_object(builder);
    json_builder_set_member_name(builder, "total");
    json_builder_begin_object(builder);
    json_sum(builder, &outlook->all);
    json_builder_end_object(builder);
    json_builder_set_member_name(builder, "ages");
    json_builder_begin_object(builder);
    for (unsigned i = 0; i < WB_CONTROL_USAGE_AGES; i++)
        add_uint(builder, age_keys[i], usage->sums.ages[i]);
    json_builder_end_object(builder);
}

/* null where vrm would not do it for the caller */
static void json_freed(JsonBuilder *builder, const struct usage *usage)
{
    json_builder_set_member_name(builder, "freed");
    if (!usage->has_freed) {
        json_builder_add_null_value(builder);
        return;
    }
    json_builder_begin_object(builder);
    add_uint(builder, "history", usage->freed.history);
    add_uint(builder, "all", usage->freed.all);
    add_uint(builder, "shared", usage->freed.shared);
    json_builder_end_object(builder);
}

/* null if the daemon does not report it, or nothing is set */
static void json_budget(JsonBuilder *builder, const struct usage *usage, const struct outlook *outlook)
{
    const struct wb_control_snapshot *holder = budget_holder(usage);
    const struct wb_control_budget *budget = &usage->budget;
    struct budget_outlook when;

    json_builder_set_member_name(builder, "budget");
    if (!usage->has_budget) {
        json_builder_add_null_value(builder);
        return;
    }
    budget_foresee(usage, outlook, &when);
    json_builder_begin_object(builder);
    add_uint(builder, "max_size", budget->max_size);
    add_uint(builder, "reserve", budget->reserve);
    wb_json_bool(builder, "keeps_all", budget->keep == INT64_MAX);
    add_uint(builder, "keep_seconds", budget->keep == INT64_MAX ? 0 : (uint64_t)(budget->keep / WB_WHEN_SECOND));
    json_builder_set_member_name(builder, "days_left");
    if (when.days >= 0)
        json_builder_add_int_value(builder, when.days);
    else
        json_builder_add_null_value(builder);
    if (holder) {
        wb_json_string(builder, "held_by", wb_snapshot_name(holder));
    } else {
        json_builder_set_member_name(builder, "held_by");
        json_builder_add_null_value(builder);
    }
    wb_json_time(builder, "held_since", holder ? holder->when : 0);
    json_builder_end_object(builder);
}

static void json_users(JsonBuilder *builder, const struct usage *usage)
{
    add_uint(builder, "user_max_size", usage->user_max_size);
    json_builder_set_member_name(builder, "users");
    json_builder_begin_array(builder);
    for (unsigned i = 0; i < usage->user_count; i++) {
        json_builder_begin_object(builder);
        add_uint(builder, "uid", usage->users[i].uid);
        add_uint(builder, "disk", usage->users[i].bytes);
        wb_json_bool(builder, "stuck", usage->users[i].flags & WB_CONTROL_USER_STUCK);
        json_builder_end_object(builder);
    }
    json_builder_end_array(builder);
}

void show_usage_json(const struct usage *usage, const struct show_usage *show)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();
    g_autoptr(GPtrArray) dirs = sorted(usage);
    struct outlook outlook;

    outlook_of(usage, &outlook);
    json_builder_begin_object(builder);
    wb_json_string(builder, "path", show->given);
    wb_json_bool(builder, "complete", !(usage->flags & WB_CONTROL_USAGE_PART));
    wb_json_bool(builder, "store", usage->flags & WB_CONTROL_USAGE_STORE);
    json_kinds(builder, usage, &outlook);
    add_uint(builder, "logs_packed", usage->sums.packed);
    add_uint(builder, "logs_bytes", outlook.logs_bytes);
    add_uint(builder, "logs_stored", outlook.logs_stored);
    add_uint(builder, "damaged", usage->sums.damaged);
    add_uint(builder, "gaps", usage->sums.gaps);
    wb_json_time(builder, "gaps_since", usage->sums.gaps_since);
    wb_json_time(builder, "gaps_until", usage->sums.gaps_until);
    wb_json_time(builder, "began", usage->sums.created);
    wb_json_time(builder, "oldest", usage->sums.oldest);
    wb_json_time(builder, "newest", usage->sums.newest);
    add_uint(builder, "bytes_last_day", outlook.day);
    add_uint(builder, "bytes_last_week", outlook.week);
    add_uint(builder, "bytes_per_day", outlook.rate);
    add_uint(builder, "room", usage->sums.room);
    add_uint(builder, "free", usage->sums.free);
    json_builder_set_member_name(builder, "days_left");
    if (outlook.days_left >= 0)
        json_builder_add_int_value(builder, outlook.days_left);
    else
        json_builder_add_null_value(builder);
    json_budget(builder, usage, &outlook);
    json_users(builder, usage);
    json_freed(builder, usage);
    json_ages(builder, usage, show);
    json_items(builder, "directories", dirs, show, true);
    json_items(builder, "files", usage->files, show, false);
    json_programs(builder, usage, show);
    json_builder_end_object(builder);
    wb_json_document(builder);
}

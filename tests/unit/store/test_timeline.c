/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The timeline has every change once and in order: built bit by bit, built anew, after a crash at any write, after
 * damage, after an erasure. The expected entries are read from the logs, without it.
 */
#include "capture/recovery/recover.h"
#include "capture_ops.h"
#include "capture_random.h"
#include "disk.h"
#include "history/history.h"
#include "maintain/erase/erase.h"
#include "store/log/log_scan.h"
#include "store/timeline/timeline.h"
#include <sys/syscall.h>
#include <sys/wait.h>

#define TREE (&model.tree)

/* ---- entries, and expected entries ---------------------------------------------------------------- */

static gint compare_whens(gconstpointer a, gconstpointer b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* `when` of all changes in the logs that happened, each once. */
static GArray *expected(void)
{
    GArray *whens = g_array_new(FALSE, FALSE, sizeof(int64_t));
    GPtrArray *records = tree_records(TREE);

    for (guint i = 0; i < records->len; i++) {
        const struct kept *kept = records->pdata[i];
        bool listed = kept->record.type == WB_REC_NAME || kept->record.type == WB_REC_ATTR ||
                      kept->record.type == WB_REC_DATA || kept->record.type == WB_REC_XATTR;

        if (listed && !kept->aborted && kept->record.op != WB_OP_NONE && kept->record.op != WB_OP_FORGET &&
            (whens->len == 0 || g_array_index(whens, int64_t, whens->len - 1) != kept->record.when))
            g_array_append_val(whens, kept->record.when);
    }
    g_array_sort(whens, compare_whens);
    g_ptr_array_unref(records);
    return whens;
}

/* Whether the entry leads to a record of its change. */
static void check_entry(const struct wb_times_entry *entry)
{
    int fd = wb_store_open_file(TREE->store, entry->object, entry->file, O_RDONLY | O_CLOEXEC);
    uint8_t data[WB_SCAN_BUFFER];
    struct wb_record record;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(wb_log_probe(fd, entry->offset, data, &record), 0);
    ck_assert_int_eq(record.when, entry->when);
    ck_assert_uint_eq(record.actor, entry->actor);
    close(fd);
}

static GArray *read_timeline(void)
{
    GArray *entries = g_array_new(FALSE, TRUE, sizeof(struct wb_times_entry));
    struct wb_times times;

    ck_assert_int_eq(wb_times_open(&times, TREE->store), 0);
    g_array_set_size(entries, (guint)times.count);
    ck_assert_int_eq(wb_times_read(&times, 0, (struct wb_times_entry *)(void *)entries->data, times.count), 0);
    wb_times_close(&times);
    return entries;
}

static void check_timeline(const char *what)
{
    GArray *wanted, *entries;

    ck_assert_int_eq(wb_timeline_pass(TREE->store), 0);
    wanted = expected();
    entries = read_timeline();
    for (guint i = 0; i < entries->len && i < wanted->len; i++) {
        const struct wb_times_entry *entry = &g_array_index(entries, struct wb_times_entry, i);

        ck_assert_msg(entry->when == g_array_index(wanted, int64_t, i), "%s: entry %u of %u is another change", what,
                      i, wanted->len);
        check_entry(entry);
    }
    ck_assert_msg(entries->len == wanted->len, "%s: %u entries for %u changes", what, entries->len, wanted->len);
    g_array_unref(wanted);
    g_array_unref(entries);
}

static void reopen(void)
{
    tree_release(TREE);
    TREE->store = wb_store_free(TREE->store);
    tree_open_store(TREE);
    ck_assert_int_eq(wb_recover(TREE->store, NULL), 0);
}

static void reopen_without(const char *name)
{
    g_autofree char *path = g_strdup_printf("%s/" WB_STORE_NAME "/timeline/%s", TREE->path, name);

    tree_release(TREE);
    TREE->store = wb_store_free(TREE->store);
    ck_assert_int_eq(unlink(path), 0);
    tree_open_store(TREE);
}

static void start(unsigned seed)
{
    model.rand = g_rand_new_with_seed(seed);
    tree_open(TREE);
    wb_change_init(&model.change, TREE->store);
}

static void finish(void)
{
    tree_close(TREE);
    g_rand_free(model.rand);
}

/* ---- tests ------------------------------------------------------------------------------------------ */

START_TEST(bit_by_bit_and_anew_it_is_the_same)
{
    GArray *bit_by_bit, *anew;

    start((unsigned)_i + 1);
    for (int i = 0; i < 200; i++) {
        step();
        if (!pick(5))
            check_timeline("bit by bit");
        if (!pick(50))
            reopen();
    }
    check_timeline("at the end");
    bit_by_bit = read_timeline();
    reopen_without("times");
    check_timeline("anew");
    anew = read_timeline();
    ck_assert_uint_eq(anew->len, bit_by_bit->len);
    for (guint i = 0; i < anew->len; i++) {
        const struct wb_times_entry *a = &g_array_index(anew, struct wb_times_entry, i);
        const struct wb_times_entry *b = &g_array_index(bit_by_bit, struct wb_times_entry, i);

        ck_assert(a->when == b->when && a->offset == b->offset && a->file == b->file &&
                  wb_object_equal(a->object, b->object));
    }
    g_array_unref(bit_by_bit);
    g_array_unref(anew);
    finish();
}
END_TEST

START_TEST(a_change_under_way_waits)
{
    struct wb_change change;
    struct wb_dir *dir;

    start(1);
    op_make(TREE, "a", "first");
    dir = tree_dir(TREE, "");
    ck_assert_int_eq(wb_capture_birth(TREE->store, &change, dir, "b", WB_OP_CREATE, 0), 0);
    op_make(TREE, "c", "while it is under way");
    ck_assert_int_eq(wb_timeline_pass(TREE->store), 0);
    {
        GArray *entries = read_timeline();

        ck_assert_uint_eq(entries->len, 2); /* a: created and written */
        g_array_unref(entries);
    }
    ck_assert_int_eq(mknodat(TREE->fd, "b", S_IFREG | 0600, 0), 0);
    wb_capture_end(&change, 0);
    check_timeline("when it is over");

    ck_assert_int_eq(wb_capture_birth(TREE->store, &change, dir, "d", WB_OP_CREATE, 0), 0);
    ck_assert_int_eq(wb_timeline_pass(TREE->store), 0);
    wb_capture_end(&change, -EIO);
    op_make(TREE, "e", "after it failed");
    check_timeline("when it has failed");
    finish();
}
END_TEST

static const char *prepare(void)
{
    start(*(const unsigned *)disk_data());
    for (int i = 0; i < 15; i++)
        step();
    tree_release(TREE);
    TREE->store = wb_store_free(TREE->store);
    return TREE->path;
}

static void begin(void)
{
    tree_open_store(TREE);
}

static int act(void)
{
    for (int i = 0; i < 6; i++) {
        step();
        if (i % 2)
            wb_timeline_pass(TREE->store);
    }
    return 0;
}

static void check(const struct disk_end *end)
{
    tree_open_store(TREE);
    ck_assert_int_eq(wb_recover(TREE->store, NULL), 0);
    check_timeline(end->at);
    op_make(TREE, "later", "life goes on");
    check_timeline("later");
    reopen_without("times");
    check_timeline("anew");
}

START_TEST(a_crash_anywhere_loses_nothing)
{
    unsigned seed = (unsigned)_i + 1;
    struct disk_trial trial = {.name = "timeline", .prepare = prepare, .begin = begin, .act = act, .check = check,
                               .clean = finish, .data = &seed};

    ck_assert_uint_ge(disk_each_stop(&trial), (unsigned)amount(10, 1));
}
END_TEST

START_TEST(a_damaged_or_missing_timeline_is_made_anew)
{
    static const char *const names[] = {"times", "moves", "pending"};
    struct wb_times times;

    start(7);
    for (int i = 0; i < 30; i++)
        step();
    check_timeline("whole");
    for (unsigned i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autofree char *path = g_strdup_printf("%s/" WB_STORE_NAME "/timeline/%s", TREE->path, names[i]);
        unsigned permille;
        int fd;

        reopen_without(names[i]);
        ck_assert(wb_timeline_is_building(TREE->store, &permille));
        ck_assert_int_eq(wb_times_open(&times, TREE->store), -EAGAIN);
        check_timeline(names[i]);
        TREE->store = wb_store_free(TREE->store);
        fd = open(path, O_WRONLY | O_CLOEXEC);
        ck_assert_int_eq(pwrite(fd, "x", 1, 3), 1);
        close(fd);
        tree_open_store(TREE);
        ck_assert_msg(wb_timeline_is_building(TREE->store, &permille), "%s", names[i]);
        check_timeline(names[i]);
    }
    /* A rebuild that fails says so, and is tried again. */
    {
        g_autofree char *path = g_strdup_printf("%s/" WB_STORE_NAME "/timeline/times.new", TREE->path);
        int r;

        reopen_without("times");
        ck_assert_int_eq(wb_timeline_failure(TREE->store), 0);
        ck_assert_int_eq(mkdir(path, 0700), 0);
        r = wb_timeline_pass(TREE->store);
        ck_assert_int_lt(r, 0);
        ck_assert_int_eq(wb_timeline_failure(TREE->store), r);
        ck_assert_int_eq(wb_times_open(&times, TREE->store), -EAGAIN);
        ck_assert_int_eq(rmdir(path), 0);
        check_timeline("after a failure");
        ck_assert_int_eq(wb_timeline_failure(TREE->store), 0);
    }
    /* An end that was not written whole is cut off by the next write. */
    TREE->store = wb_store_free(TREE->store);
    {
        g_autofree char *path = g_strdup_printf("%s/" WB_STORE_NAME "/timeline/times", TREE->path);
        int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);

        ck_assert_int_eq(write(fd, "torn", 4), 4);
        close(fd);
    }
    tree_open_store(TREE);
    op_make(TREE, "later", "text");
    check_timeline("torn");
    finish();
}
END_TEST

START_TEST(entries_are_found_by_time)
{
    struct wb_times times;
    GArray *entries;

    start(3);
    for (int i = 0; i < 60; i++)
        step();
    ck_assert_int_eq(wb_timeline_pass(TREE->store), 0);
    entries = read_timeline();
    ck_assert_int_eq(wb_times_open(&times, TREE->store), 0);
    for (guint i = 0; i < entries->len; i++) {
        int64_t when = g_array_index(entries, struct wb_times_entry, i).when;
        uint64_t index;

        ck_assert_int_eq(wb_times_find(&times, when, &index), 0);
        ck_assert_uint_eq(index, i);
        ck_assert_int_eq(wb_times_find(&times, when + 1, &index), 0);
        ck_assert_uint_eq(index, i + 1);
    }
    wb_times_close(&times);
    g_array_unref(entries);
    finish();
}
END_TEST

START_TEST(moves_of_directories_are_found)
{
    struct wb_times_entry move;
    struct wb_times times;
    struct wb_object dir;
    int64_t first, second;

    start(5);
    op_birth(TREE, "a", WB_OP_MKDIR);
    op_make(TREE, "a/f", "text");
    dir = tree_object(TREE, "a");
    op_rename(TREE, "a", "b", 0);
    tree_release(TREE);
    first = wb_store_tick(TREE->store);
    op_rename(TREE, "b", "c", 0);
    tree_release(TREE);
    second = wb_store_tick(TREE->store);
    check_timeline("moved twice");
    for (int anew = 0; anew < 2; anew++) {
        ck_assert_int_eq(wb_times_open(&times, TREE->store), 0);
        ck_assert_uint_eq(times.moves_count, 2);
        ck_assert_int_eq(wb_times_move(&times, dir, 1, &move), WB_ABSENT);
        ck_assert_int_eq(wb_times_move(&times, dir, first, &move), 0);
        ck_assert_int_lt(move.when, first);
        ck_assert_int_eq(wb_times_move(&times, dir, second, &move), 0);
        ck_assert_int_gt(move.when, first);
        wb_times_close(&times);
        reopen_without("times");
        check_timeline("anew");
    }
    finish();
}
END_TEST

START_TEST(erased_objects_leave_it)
{
    struct wb_history *history;
    struct wb_erase_count count;
    struct wb_error why = {""};
    struct wb_object erased;
    struct wb_revision *top;
    GArray *entries;

    start(9);
    op_make(TREE, "secret", "text");
    op_make(TREE, "other", "text");
    op_write(TREE, "secret", 0, "TEXT");
    op_write(TREE, "other", 0, "TEXT");
    erased = tree_object(TREE, "secret");
    op_remove(TREE, "secret", false);
    tree_release(TREE);
    check_timeline("before");
    ck_assert_int_eq(wb_history_open(&history, TREE->store), 0);
    ck_assert_int_eq(wb_revision_root(history, WB_WHEN_PRESENT, &top), 0);
    ck_assert_int_eq(wb_erase(history, top, "secret", WB_ERASE_PRESENT, 0, 0, &count, &why), 0);
    wb_revision_unref(top);
    wb_history_free(history);
    if (_i)
        reopen(); /* closing has done it */
    check_timeline("after");
    entries = read_timeline();
    ck_assert_uint_gt(entries->len, 0);
    for (guint i = 0; i < entries->len; i++)
        ck_assert(!wb_object_equal(g_array_index(entries, struct wb_times_entry, i).object, erased));
    g_array_unref(entries);
    finish();
}
END_TEST

START_TEST(readers_find_entries_after_a_crash)
{
    struct wb_error why = {""};
    struct wb_store *writer;
    GArray *before, *after;
    int status;
    pid_t child;

    start((unsigned)_i + 11);
    for (int i = 0; i < 20; i++)
        step();
    tree_release(TREE);
    TREE->store = wb_store_free(TREE->store);
    child = fork();
    if (child == 0) {
        tree_open_store(TREE);
        for (int i = 0; i < 20; i++) {
            step();
            if (i == 10)
                wb_timeline_pass(TREE->store);
        }
        syscall(SYS_exit_group, 0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    writer = TREE->store;
    ck_assert_int_eq(wb_store_open(&TREE->store, TREE->fd, NULL, 0, &why), 0);
    check_timeline("as a reader");
    before = read_timeline();
    wb_store_free(TREE->store);
    TREE->store = writer;
    tree_open_store(TREE);
    ck_assert_int_eq(wb_recover(TREE->store, NULL), 0);
    check_timeline("as a writer");
    after = read_timeline();
    ck_assert_uint_eq(before->len, after->len);
    g_array_unref(before);
    g_array_unref(after);
    finish();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("timeline");
    TCase *tcase = tcase_create("timeline");
    SRunner *runner;
    int failed;

    model_init();
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, bit_by_bit_and_anew_it_is_the_same, 0, 4);
    tcase_add_test(tcase, a_change_under_way_waits);
    tcase_add_loop_test(tcase, a_crash_anywhere_loses_nothing, 0, 2);
    tcase_add_test(tcase, a_damaged_or_missing_timeline_is_made_anew);
    tcase_add_test(tcase, entries_are_found_by_time);
    tcase_add_test(tcase, moves_of_directories_are_found);
    tcase_add_loop_test(tcase, erased_objects_leave_it, 0, 2);
    tcase_add_loop_test(tcase, readers_find_entries_after_a_crash, 0, 3);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

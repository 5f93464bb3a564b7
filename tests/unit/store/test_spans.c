/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Recorded spans: which changes were made within them and which were not, wherever the writer of the table was killed.
 */
#include "base/io.h"
#include "capture/unseen.h"
#include "maintain/relocate/move_online.h"
#include "store/inflight/spans.h"
#include "store/parts.h"
#include "time/ctime_clock.h"
#include "wayback/when.h"
#include "place.h"
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- calls that change the disk ------------------------------------------------------------------- */

static int calls_left = -1; /* until the process ends; -1: it does not */

static void call(void)
{
    if (calls_left == 0)
        _exit(99);
    calls_left -= calls_left > 0;
}

int renameat(int old_dir, const char *old_path, int new_dir, const char *new_path)
{
    call();
    return (int)syscall(SYS_renameat2, old_dir, old_path, new_dir, new_path, 0);
}

int fdatasync(int fd)
{
    call();
    return (int)syscall(SYS_fdatasync, fd);
}

ssize_t pwritev(int fd, const struct iovec *pieces, int count, off_t offset)
{
    call();
    return syscall(SYS_pwritev, fd, pieces, count, offset, 0);
}

/* ---- a store, and files of the tree ------------------------------------------------------------------ */

static char top[PLACE_SIZE];
static int src_fd;
static struct wb_store *store;

static void open_store(unsigned flags)
{
    struct wb_error why;
    int r = wb_store_open(&store, src_fd, NULL, flags, &why);

    ck_assert_msg(r == 0, "%d: %s", r, why.text);
}

static void setup(void)
{
    make_place(top, "spans");
    src_fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(src_fd, 0);
    open_store(WB_STORE_WRITE | WB_STORE_CREATE);
    wb_spans_end_opening(store);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
    return remove(path);
}

static void teardown(void)
{
    store = wb_store_free(store);
    close(src_fd);
    nftw(top, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* Longer than the pause after which another span begins, by the clock that ctime comes from. */
static void pause_recording(void)
{
    int64_t until = wb_ctime_clock() + 70 * WB_WHEN_SECOND / 1000;

    while (wb_ctime_clock() < until)
        wb_ctime_next_tick();
}

/* Changes the file; its ctime. */
static int64_t change(const char *name)
{
    int fd = openat(src_fd, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    struct stat st;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "x", 1), 1);
    ck_assert_int_eq(fstat(fd, &st), 0);
    close(fd);
    return st.st_ctim.tv_sec * WB_WHEN_SECOND + st.st_ctim.tv_nsec;
}

static int64_t change_recorded(const char *name)
{
    WB_IN_SPAN(store);

    return change(name);
}

static int64_t change_past_us(const char *name)
{
    int64_t ctime;

    pause_recording();
    ctime = change(name);
    pause_recording();
    return ctime;
}

/* ---- tests ------------------------------------------------------------------------------------------- */

/* Earlier changes of others have an earlier ctime, also if that is finer than the clock's ticks. */
START_TEST(the_next_tick_is_later_than_all_before)
{
    struct timespec now;

    for (int i = 0; i < 10; i++) {
        timespec_get(&now, TIME_UTC);
        ck_assert_int_gt(wb_ctime_next_tick(), now.tv_sec * WB_WHEN_SECOND + now.tv_nsec);
    }
}
END_TEST

START_TEST(changes_between_opening_and_the_first_record_are_not_recorded)
{
    int64_t other, first;

    store = wb_store_free(store);
    open_store(WB_STORE_WRITE);
    wb_spans_end_opening(store);
    wb_spans_begin_fresh(store);
    wb_ctime_next_tick();
    other = change("g");
    wb_ctime_next_tick();
    first = change_recorded("h");
    ck_assert(!wb_spans_has(store, other, false));
    ck_assert(wb_spans_has(store, first, false));
}
END_TEST

START_TEST(only_changes_within_a_span_are_recorded)
{
    int64_t before = change_recorded("f"), other = change_past_us("g"), after = change_recorded("h");

    ck_assert(wb_spans_has(store, before, false));
    ck_assert(!wb_spans_has(store, other, false));
    ck_assert(wb_spans_has(store, after, false));
    ck_assert_int_ge(wb_spans_before(store, other, false), before);
    ck_assert_int_lt(wb_spans_before(store, other, false), other);
    ck_assert_int_gt(wb_spans_after(store, other, false), other);
    ck_assert_int_le(wb_spans_after(store, other, false), after);
}
END_TEST

/* As at the end of a stage when it is unmounted. */
START_TEST(without_a_change_the_span_does_not_grow)
{
    int64_t before = change_recorded("f"), other = change_past_us("g");

    wb_spans_reach(store);
    ck_assert(wb_spans_has(store, before, false));
    ck_assert(!wb_spans_has(store, other, false));
}
END_TEST

START_TEST(the_next_writer_knows_the_same)
{
    int64_t before = change_recorded("f"), other, after;

    store = wb_store_free(store);
    other = change_past_us("g");
    for (int writes = 0; writes < 2; writes++) {
        open_store(writes ? WB_STORE_WRITE : 0);
        wb_spans_end_opening(store);
        ck_assert(wb_spans_has(store, before, false));
        ck_assert(!wb_spans_has(store, other, false));
        if (!writes)
            store = wb_store_free(store);
    }
    after = change_recorded("h");
    ck_assert_int_gt(wb_spans_after(store, other, false), other);
    ck_assert_int_le(wb_spans_after(store, other, false), after);
}
END_TEST

/* Until it reports that its opening is over, a writer may change anything, and another that was killed as well. */
START_TEST(all_of_an_opening_is_recorded)
{
    int64_t during, after;
    pid_t pid;
    int status;

    store = wb_store_free(store);
    pid = fork();
    if (pid == 0) {
        open_store(WB_STORE_WRITE);
        pause_recording();
        change("during");
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    during = change("during");
    open_store(WB_STORE_WRITE);
    wb_spans_end_opening(store);
    ck_assert(wb_spans_has(store, during, false));
    after = change_past_us("after");
    ck_assert(!wb_spans_has(store, after, false));
}
END_TEST

/* Nobody else's change counts as recorded, whether made before the opening, in it or after the kill. */
START_TEST(of_a_writer_in_spans_that_is_killed_its_changes_are_recorded)
{
    int64_t before, during, within, after;
    struct stat st;
    pid_t pid;
    int status;

    store = wb_store_free(store);
    before = change_past_us("before");
    pid = fork();
    if (pid == 0) {
        open_store(WB_STORE_WRITE | WB_STORE_IN_SPANS);
        ck_assert(!wb_spans_has(store, change_past_us("during"), false));
        change_recorded("within");
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(fstatat(src_fd, "during", &st, 0), 0);
    during = st.st_ctim.tv_sec * WB_WHEN_SECOND + st.st_ctim.tv_nsec;
    ck_assert_int_eq(fstatat(src_fd, "within", &st, 0), 0);
    within = st.st_ctim.tv_sec * WB_WHEN_SECOND + st.st_ctim.tv_nsec;
    after = change_past_us("after");
    open_store(WB_STORE_WRITE | WB_STORE_IN_SPANS);
    ck_assert(!wb_spans_has(store, before, false));
    ck_assert(!wb_spans_has(store, during, false));
    ck_assert(wb_spans_has(store, within, false));
    ck_assert(!wb_spans_has(store, after, false));
    after = change_past_us("after");
    ck_assert(!wb_spans_has(store, after, false));
}
END_TEST

/*
 * Opens it, changes something, checks everything and closes it, and dies before that change of the disk. Whether it
 * did.
 */
static bool die_at(int calls)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        calls_left = calls;
        open_store(WB_STORE_WRITE | WB_STORE_IN_SPANS);
        for (int i = 0; i < 3; i++) {
            change_recorded("f");
            pause_recording();
        }
        store = wb_store_free(store);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 99));
    return WEXITSTATUS(status) != 0;
}

START_TEST(a_writer_that_dies_anywhere_loses_no_span_and_invents_none)
{
    int64_t recorded = change_recorded("r"), other;

    store = wb_store_free(store);
    other = change_past_us("u");
    for (int calls = 0; die_at(calls); calls++) {
        struct stat st;
        int64_t last;

        ck_assert_int_lt(calls, 1000);
        for (int writes = 0; writes < 2; writes++) {
            open_store(writes ? WB_STORE_WRITE : 0);
            wb_spans_end_opening(store);
            ck_assert_msg(wb_spans_has(store, recorded, false), "call %d", calls);
            ck_assert_msg(!wb_spans_has(store, other, false), "call %d", calls);
            if (fstatat(src_fd, "f", &st, 0) == 0) {
                last = st.st_ctim.tv_sec * WB_WHEN_SECOND + st.st_ctim.tv_nsec;
                ck_assert_msg(wb_spans_has(store, last, false), "call %d", calls);
            }
            store = wb_store_free(store);
        }
    }
    open_store(WB_STORE_WRITE);
}
END_TEST

/* ---- the store moves --------------------------------------------------------------------------------- */

static int64_t by_others;

static int64_t ctime_of_top(void)
{
    struct stat st;

    ck_assert_int_eq(fstat(src_fd, &st), 0);
    return st.st_ctim.tv_sec * WB_WHEN_SECOND + st.st_ctim.tv_nsec;
}

/* During the copy. */
static bool edit_once(uint64_t files, uint64_t bytes, void *data)
{
    if (by_others == 0)
        by_others = change_past_us("other");
    return true;
}

START_TEST(changes_of_others_while_a_closed_store_moves_are_not_recorded)
{
    g_autofree char *beside = g_strdup_printf("%s-store", top);
    g_autofree char *inside = g_strdup_printf("%s/" WB_STORE_NAME, top);

    for (int back = 0; back < 2; back++) {
        struct wb_move_result result;
        struct wb_error why = {""};
        int64_t recorded = change_recorded("f");
        int r;

        store = wb_store_free(store);
        by_others = 0;
        r = wb_store_move(top, NULL, back ? inside : beside, 0, edit_once, NULL, &result, &why);
        ck_assert_msg(r == 0 && result.moved, "%d: %s", r, why.text);
        ck_assert_int_gt(by_others, 0);
        r = wb_store_open(&store, src_fd, back ? NULL : beside, WB_STORE_WRITE, &why);
        ck_assert_msg(r == 0, "%d: %s", r, why.text);
        wb_spans_end_opening(store);
        ck_assert(wb_spans_has(store, recorded, false));
        ck_assert(!wb_spans_has(store, by_others, false));
        ck_assert(wb_spans_has(store, ctime_of_top(), true));
    }
    nftw(beside, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}
END_TEST

static bool own(void *data)
{
    return true;
}

static void do_nothing(void *data)
{
}

static bool edit_and_continue(void *data)
{
    edit_once(0, 0, NULL);
    return false;
}

START_TEST(changes_of_others_while_an_open_store_moves_are_not_recorded)
{
    static const struct wb_move_host host = {own, do_nothing, do_nothing, edit_and_continue, NULL};
    g_autofree char *beside = g_strdup_printf("%s-store", top);

    for (int back = 0; back < 2; back++) {
        struct wb_move_result result;
        struct wb_error why = {""};
        int64_t recorded = change_recorded("f");
        int r;

        by_others = 0;
        r = wb_store_move_online(store, &host, back ? NULL : beside, &result, &why);
        ck_assert_msg(r == 0 && result.moved, "%d: %s", r, why.text);
        ck_assert_int_gt(by_others, 0);
        for (int again = 0; again < 2; again++) {
            ck_assert(wb_spans_has(store, recorded, false));
            ck_assert(!wb_spans_has(store, by_others, false));
            ck_assert(wb_spans_has(store, ctime_of_top(), true));
            if (again)
                continue;
            store = wb_store_free(store);
            r = wb_store_open(&store, src_fd, back ? NULL : beside, WB_STORE_WRITE, &why);
            ck_assert_msg(r == 0, "%d: %s", r, why.text);
            wb_spans_end_opening(store);
        }
    }
    nftw(beside, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}
END_TEST

/* ---- the table ------------------------------------------------------------------------------------------ */

/* The table of the store, as it is on the disk: whether a span of it has that moment. */
static unsigned read_spans(struct wb_span spans[WB_SPANS_MAX + 1])
{
    static uint8_t data[(WB_SPANS_MAX + 2) * WB_SPAN_SIZE];
    int fd = openat(store->dir_fd, WB_SPANS_NAME, O_RDONLY | O_CLOEXEC);
    unsigned count = 0;
    size_t length;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(wb_pread_full(fd, data, sizeof(data), 0, &length), 0);
    close(fd);
    ck_assert_uint_eq(length, (WB_SPANS_MAX + 1) * WB_SPAN_SIZE);
    for (size_t at = WB_SPAN_SIZE; at < length; at += WB_SPAN_SIZE)
        count += wb_span_decode(data + at, &spans[count]) == 0;
    return count;
}

static bool has(const struct wb_span *spans, unsigned count, int64_t moment)
{
    for (unsigned i = 0; i < count; i++)
        if (moment >= spans[i].begin && moment <= spans[i].end)
            return true;
    return false;
}

START_TEST(a_change_amid_a_kill_counts_its_own_time_only)
{
    int64_t ms = WB_WHEN_SECOND / 1000, when = wb_ctime_clock() + 100 * ms, ctime = when + 800 * ms;

    wb_spans_extend(store, when, ctime);
    ck_assert(wb_spans_has(store, ctime, false));
    ck_assert(!wb_spans_has(store, when, false));
    ck_assert(!wb_spans_has(store, ctime - 400 * ms, false));
    ck_assert(!wb_spans_has(store, ctime + 10 * ms, false));
}
END_TEST

START_TEST(too_many_are_joined_if_they_are_close)
{
    static struct wb_span spans[WB_SPANS_MAX + 1];
    int64_t begin = wb_ctime_clock() + WB_WHEN_SECOND, ms = WB_WHEN_SECOND / 1000;
    unsigned count;

    /* Pairs, and a long pause in the middle. */
    for (int i = 0; i < 3000; i++) {
        int64_t moment = begin + i * 1000 * ms + (i % 2 ? -900 * ms : 0) + (i > 1500 ? 86400 * 1000 * ms : 0);

        wb_spans_extend(store, moment, moment);
    }
    count = read_spans(spans);
    for (int i = 0; i < 3000; i++) {
        int64_t moment = begin + i * 1000 * ms + (i % 2 ? -900 * ms : 0) + (i > 1500 ? 86400 * 1000 * ms : 0);

        ck_assert_msg(has(spans, count, moment), "%d", i);
    }
    ck_assert(!has(spans, count, begin + 43200 * 1000 * ms));
}
END_TEST

START_TEST(below_the_floor_everything_was_checked)
{
    int64_t other = change_past_us("u"), later;

    ck_assert(!wb_spans_has(store, other, false));
    ck_assert_int_eq(wb_spans_raise_floor(store, wb_ctime_clock()), 0);
    ck_assert(wb_spans_has(store, other, false));
    later = change_past_us("u");
    store = wb_store_free(store);
    open_store(WB_STORE_WRITE);
    wb_spans_end_opening(store);
    ck_assert(wb_spans_has(store, other, false));
    ck_assert(!wb_spans_has(store, later, false));
}
END_TEST

/* The last step of a look at the whole tree, while another thread has just found the object outside the spans. */
START_TEST(marks_are_kept_when_the_floor_rises)
{
    const struct wb_object object = {77, 7};
    int64_t other = change_past_us("u");
    int log;

    ck_assert_int_eq(wb_capture_unseen(store, object, NULL, NULL, other), 1);
    ck_assert_int_eq(wb_capture_unseen(store, object, NULL, NULL, other), 0);
    log = wb_store_open_file(store, object, WB_FILE_UNDO, O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(log, 0);
    ck_assert_int_eq(wb_spans_is_marked(store, log, other, false), 1);
    ck_assert_int_eq(wb_spans_raise_floor(store, wb_ctime_clock()), 0);
    ck_assert_int_eq(wb_spans_is_marked(store, log, other, false), 1);
    ck_assert_int_lt(wb_spans_before(store, other, false), other);
    close(log);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("spans");
    TCase *tests = tcase_create("spans");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 240);
    tcase_add_test(tests, the_next_tick_is_later_than_all_before);
    tcase_add_test(tests, changes_between_opening_and_the_first_record_are_not_recorded);
    tcase_add_test(tests, only_changes_within_a_span_are_recorded);
    tcase_add_test(tests, without_a_change_the_span_does_not_grow);
    tcase_add_test(tests, the_next_writer_knows_the_same);
    tcase_add_test(tests, all_of_an_opening_is_recorded);
    tcase_add_test(tests, of_a_writer_in_spans_that_is_killed_its_changes_are_recorded);
    tcase_add_test(tests, a_writer_that_dies_anywhere_loses_no_span_and_invents_none);
    tcase_add_test(tests, a_change_amid_a_kill_counts_its_own_time_only);
    tcase_add_test(tests, changes_of_others_while_a_closed_store_moves_are_not_recorded);
    tcase_add_test(tests, changes_of_others_while_an_open_store_moves_are_not_recorded);
    tcase_add_test(tests, too_many_are_joined_if_they_are_close);
    tcase_add_test(tests, marks_are_kept_when_the_floor_rises);
    tcase_add_test(tests, below_the_floor_everything_was_checked);
    suite_add_tcase(suite, tests);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

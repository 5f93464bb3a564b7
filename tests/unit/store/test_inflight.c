/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Slots of `inflight` as stores into a mapping: nothing is lost between any two of them, nor if they fail. */
#include "base/io.h"
#include "store/inflight/inflight_parts.h"
#include "place.h"
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FILE_OBJECT ((struct wb_object){77, 5})
#define DIR_OBJECT ((struct wb_object){78, 6})

static char top[PLACE_SIZE];
static int src_fd;

static void setup(void)
{
    make_place(top, "inflight");
    src_fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(src_fd, 0);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static void teardown(void)
{
    close(src_fd);
    nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static struct wb_store *open_store(bool mapped)
{
    struct wb_store *store = NULL;
    struct wb_error why;
    int r = wb_store_open(&store, src_fd, NULL, WB_STORE_WRITE | WB_STORE_CREATE, &why);

    ck_assert_msg(r == 0, "%d: %s", r, why.text);
    if (mapped)
        wb_inflight_map(store);
    return store;
}

static int begin(struct wb_store *store, int64_t when)
{
    return wb_inflight_begin(store, when, FILE_OBJECT, WB_FILE_UNDO, DIR_OBJECT, WB_FILE_CATALOG, 2);
}

static void read_file(struct wb_inflight_file *file)
{
    int fd = openat(src_fd, ".wayback/inflight", O_RDONLY | O_CLOEXEC);

    ck_assert_int_eq(wb_pread_exact(fd, file, sizeof(*file), 0), 0);
    close(fd);
}

static void write_file(const struct wb_inflight_file *file)
{
    int fd = openat(src_fd, ".wayback/inflight", O_RDWR | O_CLOEXEC);

    ck_assert_int_eq(wb_pwrite_full(fd, file, sizeof(*file), 0), 0);
    close(fd);
}

START_TEST(both_ways_write_the_same)
{
    struct wb_inflight_file files[2][2];

    for (int mapped = 0; mapped < 2; mapped++) {
        struct wb_store *store = open_store(mapped);
        int64_t whens[3];
        int slots[3];

        for (int i = 0; i < 3; i++) {
            whens[i] = wb_store_tick(store);
            slots[i] = begin(store, whens[i]);
            ck_assert_int_eq(slots[i], i);
        }
        wb_inflight_end(store, 1);
        read_file(&files[mapped][0]);
        wb_inflight_end(store, 0);
        wb_inflight_end(store, 2);
        read_file(&files[mapped][1]);
        ck_assert_int_eq(wb_store_last_change(store), whens[2]);
        for (int i = 0; i < 3; i++) {
            ck_assert_int_eq(wb_inflight_clock(files[mapped][1].slots[i].changed), whens[i]);
            /* Fields that differ in any case. */
            files[mapped][0].slots[i].when = files[mapped][1].slots[i].when = 0;
            files[mapped][0].slots[i].sequence = files[mapped][0].slots[i].sequence != 0;
            files[mapped][1].slots[i].changed = 0;
        }
        files[mapped][0].slots[1].changed = 0;
        wb_store_free(store);
    }
    ck_assert_mem_eq(files[0][0].slots, files[1][0].slots, sizeof(files[0][0].slots));
    ck_assert_mem_eq(files[0][1].slots, files[1][1].slots, sizeof(files[0][1].slots));
}
END_TEST

static int count_left(const struct wb_inflight_entry *entry, void *data)
{
    unsigned *count = data;

    ck_assert_int_eq(entry->logs, 2);
    ck_assert(wb_object_equal(entry->a, FILE_OBJECT) && wb_object_equal(entry->b, DIR_OBJECT));
    ck_assert(entry->a_kind == WB_FILE_UNDO && entry->b_kind == WB_FILE_CATALOG);
    ++*count;
    return 0;
}

/* Killed with the file as it is: the next one starts from it. */
static void check_left(const struct wb_inflight_file *file, unsigned left, int64_t changed, int64_t changed_at_most,
                       int64_t clock)
{
    struct wb_store *store;
    unsigned count = 0;

    write_file(file);
    store = open_store(false);
    ck_assert_int_eq(wb_inflight_each(store, count_left, &count), 0);
    ck_assert_uint_eq(count, left);
    ck_assert_int_ge(wb_store_last_change(store), changed);
    ck_assert_int_le(wb_store_last_change(store), changed_at_most);
    ck_assert_int_gt(wb_store_tick(store), clock);
    ck_assert_int_eq(wb_inflight_clear(store), 0);
    wb_store_free(store);
}

/*
 * A change `before` has ended in the slot, `when` begins in it and ends: killed after each of the stores.
 */
START_TEST(a_kill_between_any_two_stores_loses_nothing)
{
    struct wb_store *store = open_store(true);
    int64_t before = wb_store_tick(store), when;
    struct wb_inflight_word words[WB_INFLIGHT_WORDS];
    struct wb_inflight_slot data;
    struct wb_inflight_file file;
    unsigned count;

    ck_assert_int_eq(begin(store, before), 0);
    wb_inflight_end(store, 0);
    when = wb_store_tick(store) + 1000;
    read_file(&file);
    data = (struct wb_inflight_slot){
        .sequence = htole64(9), .when = htole64((uint64_t)when), .logs = htole32(2), .a_kind = htole32(WB_FILE_UNDO),
        .b_kind = htole32(WB_FILE_CATALOG), .a_ino = htole64(77), .a_birth = htole64(5), .b_ino = htole64(78),
        .b_birth = htole64(6),
    };
    wb_store_free(store);

    count = wb_inflight_words_taken(0, &data, words);
    ck_assert_uint_eq(count, WB_INFLIGHT_WORDS);
    check_left(&file, 0, before, before, before);
    for (unsigned i = 0; i < count; i++) {
        wb_inflight_store_word((uint64_t *)&file, &words[i]);
        check_left(&file, i == count - 1, i == count - 1 ? when : before, when, i == count - 1 ? when : before);
    }
    ck_assert_mem_eq(&file.slots[0], &data, sizeof(data));
    count = wb_inflight_words_free(0, when + 5, when, words);
    for (unsigned i = 0; i < count; i++) {
        wb_inflight_store_word((uint64_t *)&file, &words[i]);
        check_left(&file, 0, when, when, when);
    }
    ck_assert_uint_eq(file.slots[0].sequence, 0);
    ck_assert_int_eq(wb_inflight_clock(file.slots[0].when), when + 5);
}
END_TEST

START_TEST(the_head_never_decreases)
{
    struct wb_store *store = open_store(true);
    int64_t newest = wb_store_tick(store) + 1000000, older = wb_store_tick(store);
    struct wb_inflight_file file;

    ck_assert_int_eq(begin(store, newest), 0);
    ck_assert_int_eq(begin(store, older), 1);
    read_file(&file);
    if (store->inflight->mapped)
        ck_assert_int_eq(wb_inflight_clock(file.head.changed), newest);
    store->inflight->mark = 0;
    ck_assert_int_eq(wb_inflight_sync(store->inflight), 0);
    read_file(&file);
    ck_assert_int_eq(wb_inflight_clock(file.head.changed), newest);
    ck_assert_int_gt(wb_inflight_clock(file.head.mark), wb_inflight_clock(file.head.last));
    wb_inflight_end(store, 0);
    wb_inflight_end(store, 1);
    wb_store_free(store);
}
END_TEST

/* After a power cut the clock continues at the mark: the mark is above all times given out, and not far above. */
START_TEST(the_mark_is_at_most_two_seconds_ahead)
{
    struct wb_store *store = open_store(true);
    struct wb_inflight_file file;
    int64_t now, mark;

    for (int i = 0; i < 3; i++) {
        read_file(&file);
        now = wb_store_tick(store);
        mark = wb_inflight_clock(file.head.mark);
        ck_assert_int_le(mark, now + 2 * WB_WHEN_SECOND);
        /* As if time had passed: the clock has overtaken the mark. */
        wb_inflight_raise(store->inflight, mark + 1);
        ck_assert_int_eq(wb_inflight_sync(store->inflight), 0);
        read_file(&file);
        ck_assert_int_gt(wb_inflight_clock(file.head.mark), mark + 1);
    }
    wb_store_free(store);
}
END_TEST

/* The same as a full disk, if the page of the store has to be written elsewhere: it raises SIGBUS. */
START_TEST(a_store_that_fails_is_a_write_and_so_are_all_after_it)
{
    struct wb_store *store = open_store(true);
    struct wb_inflight_file file;
    int64_t when;

    if (!store->inflight->mapped) {
        wb_store_free(store);
        return;
    }
    ck_assert_int_eq(begin(store, wb_store_tick(store)), 0);
    read_file(&file);
    ck_assert_int_eq(ftruncate(store->inflight->fd, 0), 0);
    when = wb_store_tick(store);
    ck_assert_int_eq(begin(store, when), 1);
    ck_assert_ptr_null(store->inflight->mapped);
    ck_assert_int_eq(wb_pwrite_full(store->inflight->fd, &file, sizeof(file.head) + sizeof(file.slots[0]), 0), 0);
    ck_assert_int_eq(ftruncate(store->inflight->fd, sizeof(file)), 0);
    read_file(&file);
    ck_assert_int_eq(wb_inflight_clock(file.slots[1].when), when);
    ck_assert_uint_ne(file.slots[1].sequence, 0);
    wb_inflight_end(store, 0);
    wb_inflight_end(store, 1);
    read_file(&file);
    ck_assert_uint_eq(file.slots[0].sequence, 0);
    ck_assert_uint_eq(file.slots[1].sequence, 0);
    wb_store_free(store);
    store = open_store(true);
    ck_assert_int_eq(wb_store_last_change(store), when);
    wb_store_free(store);
}
END_TEST

/* And if that cannot be written either, it is refused, as usual. */
START_TEST(a_store_that_fails_and_cannot_be_written_is_an_error)
{
    struct wb_store *store = open_store(true);
    int fd = store->inflight->fd, read_only = openat(src_fd, ".wayback/inflight", O_RDONLY | O_CLOEXEC);

    ck_assert_int_eq(ftruncate(fd, 0), 0);
    store->inflight->fd = read_only;
    ck_assert_int_eq(begin(store, wb_store_tick(store)), -EBADF);
    store->inflight->fd = fd;
    ck_assert_int_eq(ftruncate(fd, sizeof(struct wb_inflight_file)), 0);
    ck_assert_int_eq(begin(store, wb_store_tick(store)), 0);
    wb_inflight_end(store, 0);
    close(read_only);
    wb_store_free(store);
}
END_TEST

/* A fault in other memory is not ours: it ends the process as it would without the handler. */
START_TEST(other_bus_errors_are_left_alone)
{
    pid_t pid = fork();
    int status;

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        struct wb_store *store;
        int fd = open(top, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        volatile char *empty = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        signal(SIGBUS, SIG_DFL); /* not a sanitizer's */
        store = open_store(true);
        begin(store, wb_store_tick(store));
        *empty = 1;
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(!WIFEXITED(status) || WEXITSTATUS(status) != 0);
}
END_TEST

/* The progress of the child, reported without system calls. */
struct reached {
    _Atomic int64_t begun, ended, when;
};

static void change_for_ever(struct reached *reached)
{
    struct wb_store *store = open_store(true);

    for (;;) {
        int64_t when = wb_store_tick(store);
        int slot;

        reached->when = when;
        slot = begin(store, when);
        if (slot < 0)
            _exit(1);
        reached->begun = when;
        wb_inflight_end(store, slot);
        reached->ended = when;
    }
}

START_TEST(a_kill_at_any_moment_loses_nothing)
{
    struct reached *reached = mmap(NULL, sizeof(*reached), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    for (int round = 0; round < 40; round++) {
        struct timespec pause = {.tv_nsec = round * 7919 % 400 * 1000};
        struct wb_store *store;
        unsigned left = 0;
        int64_t from = reached->ended;
        pid_t pid = fork();
        int status;

        ck_assert_int_ge(pid, 0);
        if (pid == 0)
            change_for_ever(reached);
        while (reached->ended == from && waitpid(pid, &status, WNOHANG) == 0)
            sched_yield();
        nanosleep(&pause, NULL);
        kill(pid, SIGKILL);
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        store = open_store(false);
        ck_assert_int_eq(wb_inflight_each(store, count_left, &left), 0);
        ck_assert_uint_le(left, reached->ended < reached->when);
        ck_assert_int_ge(wb_store_last_change(store), reached->begun);
        ck_assert_int_le(wb_store_last_change(store), reached->when);
        ck_assert_int_gt(wb_store_tick(store), reached->begun);
        ck_assert_int_eq(wb_inflight_clear(store), 0);
        wb_store_free(store);
    }
    munmap(reached, sizeof(*reached));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("inflight");
    TCase *tests = tcase_create("inflight");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, both_ways_write_the_same);
    tcase_add_test(tests, a_kill_between_any_two_stores_loses_nothing);
    tcase_add_test(tests, the_head_never_decreases);
    tcase_add_test(tests, the_mark_is_at_most_two_seconds_ahead);
    tcase_add_test(tests, a_store_that_fails_is_a_write_and_so_are_all_after_it);
    tcase_add_test(tests, a_store_that_fails_and_cannot_be_written_is_an_error);
    tcase_add_test(tests, other_bus_errors_are_left_alone);
    tcase_add_test(tests, a_kill_at_any_moment_loses_nothing);
    suite_add_tcase(suite, tests);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}

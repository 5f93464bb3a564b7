/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A log is pruned in place, while it is appended to, and that ends before any of the system calls that change
 * something: by a kill, by a power cut, or by the one after the other. No past is refused for it, and none is wrong.
 */
#include "capture/recovery/recover.h"
#include "history_tree.h"
#include "prune_before.h"
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define LENGTH 40000
#define MADE 16      /* changes before */
#define MEANWHILE 3  /* and while it is forgotten */
#define FORGOTTEN 13 /* of those before */
#define SETTLING_ROOM 256

/* Memory that outlives a killed process. */
static struct {
    unsigned calls, done; /* system calls; changes that are complete */
    int64_t whens[MADE + MEANWHILE + 1];
    bool was_noted, in_change;
    off_t synced; /* of the log: the rest is in the page cache */
    size_t settling_length;
    uint8_t settling[SETTLING_ROOM]; /* as it is on the disk */
} *seen;

static ino_t log_inode;
static bool watched, changing;
static int countdown = -1;
static bool may_be_gap;
static bool full; /* there is no room for the note */

/* ---- the changes ----------------------------------------------------------------------------- */

static char *text_of(unsigned number)
{
    char *text = g_strnfill(LENGTH, (char)('a' + number % 26)), digits[8];

    g_snprintf(digits, sizeof(digits), "%06u", number);
    memcpy(text, digits, 6);
    return text;
}

static void change(void)
{
    g_autofree char *text = text_of(seen->done);

    changing = seen->in_change = true;
    op_write(&tree, "f", 0, text);
    seen->whens[seen->done] = now();
    seen->done++;
    changing = seen->in_change = false;
}

/* ---- system calls ---------------------------------------------------------------------------- */

static void tick(void)
{
    if (!watched)
        return;
    seen->calls++;
    if (countdown >= 0 && countdown-- == 0)
        syscall(SYS_exit_group, 42);
}

/* Whether bytes really reach the disk does not matter here, and takes long. */
static int synced(int fd)
{
    struct stat st, settling;

    if (!watched || fstat(fd, &st) < 0)
        return 0;
    if (st.st_ino == log_inode)
        seen->synced = st.st_size;
    if (fstatat(tree.fd, ".wayback/settling", &settling, 0) == 0 && settling.st_ino == st.st_ino)
        ck_assert_int_eq(wb_pread_full(fd, seen->settling, SETTLING_ROOM, 0, &seen->settling_length), 0);
    /* Not those of the change itself. */
    if (st.st_ino == log_inode && !changing && seen->done < MADE + MEANWHILE) {
        seen->was_noted |= !wb_object_is_none(tree.store->mtime_untrusted);
        change();
    }
    return 0;
}

int fdatasync(int fd)
{
    tick();
    return synced(fd);
}

int fsync(int fd)
{
    bool before = changing;

    tick();
    /* It is called with the log's lock held. */
    changing = true;
    synced(fd);
    changing = before;
    return 0;
}

int syncfs(int fd)
{
    return 0;
}

int fallocate(int fd, int mode, off_t offset, off_t length)
{
    tick();
    return (int)syscall(SYS_fallocate, fd, mode, offset, length);
}

int futimens(int fd, const struct timespec times[2])
{
    tick();
    return (int)syscall(SYS_utimensat, fd, NULL, times, 0);
}

int ftruncate(int fd, off_t length)
{
    tick();
    return (int)syscall(SYS_ftruncate, fd, length);
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset)
{
    tick();
    return syscall(SYS_pwrite64, fd, data, length, offset);
}

static bool is_refused(int fd)
{
    struct stat st, settling;

    return full && fstat(fd, &st) == 0 && fstatat(tree.fd, ".wayback/settling", &settling, 0) == 0 &&
           settling.st_ino == st.st_ino;
}

ssize_t pwritev(int fd, const struct iovec *iov, int count, off_t offset)
{
    tick();
    if (is_refused(fd)) {
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_pwritev, fd, iov, count, offset, 0);
}

/* There is no space to write anything beside. */
int fstatvfs(int fd, struct statvfs *ret)
{
    *ret = (struct statvfs){.f_bsize = 4096, .f_frsize = 4096, .f_blocks = 1000};
    return 0;
}

/* ---- pruning, and how it ends ---------------------------------------------------------------- */

static void prune(int64_t before)
{
    ck_assert_uint_gt(prune_before(tree.store, before, false).log_bytes, 0);
}

static char *log_path(void)
{
    char path[WB_OBJECT_PATH_MAX];

    wb_object_path(tree_object(&tree, "f"), WB_FILE_UNDO, path);
    return g_strdup_printf(".wayback/%s", path);
}

static void make_history(void)
{
    g_autofree char *path = NULL;
    struct stat st;

    memset(seen, 0, sizeof(*seen));
    tree_open(&tree);
    op_make(&tree, "f", "");
    while (seen->done < MADE)
        change();
    tree.store = wb_store_free(tree.store);
    path = log_path();
    ck_assert_int_eq(fstatat(tree.fd, path, &st, 0), 0);
    log_inode = st.st_ino;
    seen->synced = st.st_size;
}

static int in_another_process(void (*work)(void))
{
    pid_t child = fork();
    int status = 0;

    if (child == 0) {
        work();
        syscall(SYS_exit_group, 0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void forget_and_be_killed(void)
{
    tree_open_store(&tree);
    ck_assert_int_eq(wb_recover(tree.store, NULL), 0);
    watched = true;
    prune(seen->whens[FORGOTTEN]);
    watched = false;
}

static void forget_and_change_once_more(void)
{
    forget_and_be_killed();
    change();
}

static void recover_and_be_killed(void)
{
    tree_open_store(&tree);
    ck_assert_int_eq(wb_recover(tree.store, NULL), 0);
}

/* The clock's file says that it was another boot, and that the store was not closed. */
static void lose_power(void)
{
    int fd = openat(tree.fd, ".wayback/inflight", O_RDWR | O_CLOEXEC);
    uint64_t boot = 1;

    ck_assert_int_eq(wb_pwrite_full(fd, &boot, sizeof(boot), 24), 0);
    close(fd);
}

/* Metadata are as they were last; of data, there is what was synced. */
static void lose_what_was_not_synced(void)
{
    g_autofree char *path = log_path();
    int fd = openat(tree.fd, path, O_RDWR | O_CLOEXEC);
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}};
    struct stat st;

    ck_assert_int_eq(fstat(fd, &st), 0);
    times[1] = st.st_mtim;
    if (st.st_size > seen->synced)
        ck_assert_int_eq(ftruncate(fd, seen->synced), 0);
    ck_assert_int_eq(futimens(fd, times), 0);
    close(fd);
    fd = openat(tree.fd, ".wayback/settling", O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    ck_assert_int_eq(ftruncate(fd, 0), 0);
    ck_assert_int_eq(wb_pwrite_full(fd, seen->settling, seen->settling_length, 0), 0);
    close(fd);
}

/* ---- expected results ------------------------------------------------------------------------ */

/* 1: as it was, 0: refused. */
static int look_at(unsigned number)
{
    struct wb_revision *revision = find("f", seen->whens[number], NULL);
    g_autofree char *wanted = text_of(number), *text = NULL;
    ssize_t n = 0;

    ck_assert_ptr_nonnull(revision);
    text = content_of(revision, &n);
    wb_revision_unref(revision);
    if (n == -EIO)
        return 0;
    ck_assert_int_eq(n, LENGTH);
    ck_assert_msg(strcmp(text, wanted) == 0, "of change %u, %.6s is reported", number, text);
    return 1;
}

static void check_all(int call)
{
    int64_t horizon;

    ck_assert_int_eq(wb_history_open(&history, tree.store), 0);
    horizon = wb_store_horizon(tree.store);
    for (unsigned i = 0; i < seen->done; i++)
        if (seen->whens[i] >= horizon)
            ck_assert_msg(look_at(i) == 1 || may_be_gap, "call %d: what change %u left is refused: %s", call, i,
                          wb_history_error());
    wb_history_free(history);
}

static void check_for_readers(int call)
{
    struct wb_error why = {""};

    ck_assert_int_eq(wb_store_open(&tree.store, tree.fd, NULL, 0, &why), 0);
    check_all(call);
    tree.store = wb_store_free(tree.store);
}

static void check_for_writers(int call)
{
    tree_open_store(&tree);
    ck_assert_int_eq(wb_recover(tree.store, NULL), 0);
    check_all(call);
    /* Nothing is left of it: later changes are judged as usual. */
    ck_assert(wb_object_is_none(tree.store->mtime_untrusted));
    change();
    check_all(call);
}

static void all_is_on_the_disk(int call)
{
    lose_power();
    check_for_readers(call);
}

static void the_rest_is_lost(int call)
{
    lose_what_was_not_synced();
    lose_power();
    check_for_readers(call);
}

static void killed_first(int call)
{
    ck_assert_int_eq(in_another_process(recover_and_be_killed), 0);
    lose_power();
}

START_TEST(a_power_cut_is_no_gap)
{
    static void (*const cuts[])(int) = {all_is_on_the_disk, the_rest_is_lost, killed_first};
    bool ended = false;

    for (int call = 0, turn = 0; !ended; call += amount(2, 4), turn++) {
        make_history();
        countdown = call;
        ended = in_another_process(forget_and_be_killed) == 0;
        countdown = -1;
        /* An append was cut off before there was a note: the log's time of it may have reached the disk. */
        may_be_gap = seen->in_change && wb_is_zero(seen->settling + WB_WRITEBACK_NOTE, WB_GAP_SIZE);
        cuts[turn % 3](call);
        check_for_writers(call);
        tree_close(&tree);
    }
    ck_assert_uint_gt(seen->calls, 30);
    ck_assert_uint_eq(seen->done, MADE + MEANWHILE + 1);
    ck_assert(seen->was_noted);
}
END_TEST

START_TEST(a_later_loss_is_a_gap)
{
    make_history();
    ck_assert_int_eq(in_another_process(forget_and_change_once_more), 0);
    lose_what_was_not_synced();
    lose_power();
    tree_open_store(&tree);
    ck_assert_int_eq(wb_recover(tree.store, NULL), 0);
    ck_assert_int_eq(wb_history_open(&history, tree.store), 0);
    ck_assert_int_eq(look_at(seen->done - 2), 0);
    wb_history_free(history);
    tree_close(&tree);
}
END_TEST

/* A program that knows of no note begins the list of content in its place. */
START_TEST(content_that_another_program_noted_is_a_gap)
{
    uint8_t data[2 * WB_GAP_SIZE];
    int fd;

    make_history();
    ck_assert_int_eq(in_another_process(recover_and_be_killed), 0);
    wb_gap_encode_head(data);
    wb_gap_encode(&(struct wb_open_gap){tree_object(&tree, "f"), 1, WB_FILE_UNDO}, data + WB_GAP_SIZE);
    fd = openat(tree.fd, ".wayback/settling", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_eq(wb_pwrite_full(fd, data, sizeof(data), 0), 0);
    close(fd);
    for (int i = 0; i < 2; i++) {
        lose_power();
        tree_open_store(&tree);
        ck_assert_int_eq(wb_recover(tree.store, NULL), 0);
        ck_assert_int_eq(wb_history_open(&history, tree.store), 0);
        /* It is reported once. */
        ck_assert_int_eq(look_at(seen->done - 1), i);
        seen->whens[seen->done - 1] = now();
        wb_history_free(history);
        tree.store = wb_store_free(tree.store);
    }
    tree_close(&tree);
}
END_TEST

START_TEST(without_space_for_a_note_it_is_forgotten_all_the_same)
{
    make_history();
    tree_open_store(&tree);
    ck_assert_int_eq(wb_recover(tree.store, NULL), 0);
    full = true;
    prune(seen->whens[FORGOTTEN]);
    full = false;
    /* Later changes are not synced each time. */
    ck_assert(wb_object_is_none(tree.store->mtime_untrusted));
    change();
    check_all(0);
    tree_close(&tree);
}
END_TEST

START_TEST(a_full_disk_does_not_prevent_opening_the_store)
{
    make_history();
    ck_assert_int_eq(in_another_process(forget_and_be_killed), 0);
    full = true;
    tree_open_store(&tree);
    ck_assert_int_eq(wb_recover(tree.store, NULL), 0);
    full = false;
    tree_close(&tree);
}
END_TEST

static void setup_shared(void)
{
    seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(seen, MAP_FAILED);
}

int main(void)
{
    Suite *suite = suite_create("log_mtime");
    TCase *tcase = tcase_create("cuts");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup_shared, NULL);
    tcase_add_test(tcase, a_power_cut_is_no_gap);
    tcase_add_test(tcase, a_later_loss_is_a_gap);
    tcase_add_test(tcase, content_that_another_program_noted_is_a_gap);
    tcase_add_test(tcase, without_space_for_a_note_it_is_forgotten_all_the_same);
    tcase_add_test(tcase, a_full_disk_does_not_prevent_opening_the_store);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The daemon dies before any of its system calls that change something: the tree is as before or after the change, the
 * past is as it was, and only a change that happened is a version.
 */
#include "capture_replay.h"
#include "capture/recovery/recover.h"
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

/* ---- system calls that kill ------------------------------------------------------------------ */

static int countdown = -1;

static void tick(void)
{
    if (countdown >= 0 && countdown-- == 0)
        syscall(SYS_exit_group, 42);
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    tick();
    return (int)syscall(SYS_renameat2, a, from, b, to, flags);
}

int renameat(int a, const char *from, int b, const char *to)
{
    tick();
    return (int)syscall(SYS_renameat2, a, from, b, to, 0);
}

int linkat(int a, const char *from, int b, const char *to, int flags)
{
    tick();
    return (int)syscall(SYS_linkat, a, from, b, to, flags);
}

int unlinkat(int a, const char *name, int flags)
{
    tick();
    return (int)syscall(SYS_unlinkat, a, name, flags);
}

ssize_t pwritev(int fd, const struct iovec *iov, int count, off_t offset)
{
    tick();
    return syscall(SYS_pwritev, fd, iov, count, offset, 0);
}

/* ---- the operations -------------------------------------------------------------------------- */

static struct tree tree;

static void write_file(const char *path, size_t length)
{
    g_autofree char *full = g_strdup_printf("%s/%s", tree.path, path), *data = g_malloc(length + 1);

    memset(data, path[0], length);
    ck_assert(g_file_set_contents(full, data, (gssize)length, NULL));
}

/* d/f e/g are files, d/h another name of d/f; d/x (with d/x/y) e/z are directories */
static void make_tree(void)
{
    tree_open(&tree);
    ck_assert_int_eq(mkdirat(tree.fd, "d", 0755) | mkdirat(tree.fd, "e", 0755) | mkdirat(tree.fd, "d/x", 0755) |
                         mkdirat(tree.fd, "d/x/y", 0755) | mkdirat(tree.fd, "e/z", 0755), 0);
    write_file("d/f", 3000000);
    write_file("e/g", 5000);
    ck_assert_int_eq(linkat(tree.fd, "d/f", tree.fd, "d/h", 0), 0);
    /* known to the store before, as after some use */
    ck_assert_int_eq(wb_capture_ensure_catalog(tree.store, tree_dir(&tree, "d/x/y")), 0);
    ck_assert_int_eq(wb_capture_ensure_catalog(tree.store, tree_dir(&tree, "e")), 0);
}

static int do_unlink(void)
{
    return wb_capture_remove(tree.store, tree_dir(&tree, "e"), "g", false, 0);
}

static int do_unlink_one_of_two(void)
{
    return wb_capture_remove(tree.store, tree_dir(&tree, "d"), "h", false, 0);
}

static int do_rmdir(void)
{
    return wb_capture_remove(tree.store, tree_dir(&tree, "d/x"), "y", true, 0);
}

static int rename_to(const char *from, const char *to, unsigned flags)
{
    const char *old_name, *new_name;
    struct wb_dir *old_dir = tree_parent(&tree, from, &old_name), *new_dir = tree_parent(&tree, to, &new_name);

    return wb_capture_rename(tree.store, old_dir, old_name, new_dir, new_name, flags, NULL, NULL, 0);
}

static int do_rename(void)
{
    return rename_to("d/f", "e/new", 0);
}

static int do_replace(void)
{
    return rename_to("d/f", "e/g", 0);
}

static int do_replace_dir(void)
{
    return rename_to("d/x", "e/z", 0);
}

static int do_move_dir(void)
{
    return rename_to("d/x", "e/x", 0);
}

static int do_exchange(void)
{
    return rename_to("d/x", "e/g", RENAME_EXCHANGE);
}

static int do_restore(void)
{
    struct wb_object object = tree_object(&tree, "e/g");
    int saved = countdown, r;

    countdown = -1; /* the crash must happen while restoring */
    r = wb_capture_remove(tree.store, tree_dir(&tree, "e"), "g", false, 0);
    countdown = saved;
    return r < 0 ? r : wb_capture_restore(tree.store, tree_dir(&tree, "d"), "f", object, false, -1, NULL, 0);
}

static int do_content(enum wb_op op, uint64_t size_after, const char *data, size_t length)
{
    struct wb_overwrite overwrite = {.op = op, .offset = op == WB_OP_WRITE ? 0 : size_after, .length = length,
                           .size_after = size_after, .new_data = data};
    struct wb_target target;
    struct wb_change change;
    int fd = tree_target(&tree, "d/f", O_RDWR, &target), r;

    r = wb_capture_content(tree.store, &change, &target, fd, &overwrite, 0);
    if (r < 0)
        return r;
    tick();
    r = op == WB_OP_WRITE ? (pwrite(fd, data, length, 0) == (ssize_t)length ? 0 : -EIO)
                          : ftruncate(fd, (off_t)size_after);
    tick();
    wb_capture_end(&change, r);
    return r;
}

static int do_truncate(void)
{
    return do_content(WB_OP_TRUNCATE, 10, NULL, 3000000);
}

static int do_write(void)
{
    return do_content(WB_OP_WRITE, 3000000, "other", 5);
}

/* The caller that looks at the bytes about to be lost is the first reader: that moves the access time. */
static int do_write_unread(void)
{
    struct timespec times[2] = {{.tv_sec = 1000000000}, {.tv_nsec = UTIME_OMIT}};

    return utimensat(tree.fd, "d/f", times, 0) < 0 ? -errno : do_write();
}

static int do_setattr(const char *xattr)
{
    struct wb_target target;
    struct wb_change change;
    int fd = tree_target(&tree, "e/g", O_RDWR, &target), r;

    r = xattr ? wb_capture_xattr(tree.store, &change, &target, fd, xattr, WB_OP_SETXATTR, 0)
              : wb_capture_attrs(tree.store, &change, &target, fd, WB_OP_CHMOD, 0);
    if (r < 0)
        return r;
    tick();
    r = xattr ? fsetxattr(fd, xattr, "v", 1, 0) : fchmod(fd, 0600);
    tick();
    wb_capture_end(&change, r);
    return r;
}

static int do_chmod(void)
{
    return do_setattr(NULL);
}

static int do_setxattr(void)
{
    return do_setattr("user.x");
}

static int do_create(void)
{
    struct wb_dir *dir = tree_dir(&tree, "d/x");
    struct wb_change change;
    int r = wb_capture_birth(tree.store, &change, dir, "new", WB_OP_CREATE, 0);

    if (r < 0)
        return r;
    tick();
    r = mknodat(dir->fd, "new", S_IFREG | 0600, 0);
    tick();
    wb_capture_end(&change, r);
    return r;
}

static const struct {
    const char *name;
    int (*run)(void);
} operations[] = {
    {"unlink", do_unlink},       {"unlink one of two", do_unlink_one_of_two},
    {"rmdir", do_rmdir},         {"rename", do_rename},
    {"replace", do_replace},     {"replace dir", do_replace_dir},
    {"move dir", do_move_dir},   {"exchange", do_exchange},
    {"restore", do_restore},     {"truncate", do_truncate},
    {"write", do_write},         {"chmod", do_chmod},
    {"setxattr", do_setxattr},   {"create", do_create},
    {"write unread", do_write_unread},
};

/* ---- the test -------------------------------------------------------------------------------- */

/* Without change times: a link made and not used moves those of a file. */
static char *without_ctime(char *text)
{
    for (char *at = text; (at = strstr(at, "ctime="));)
        for (at += 6; *at >= '0' && *at <= '9'; at++)
            *at = 'x';
    return text;
}

static char *state_at(int64_t when)
{
    return without_ctime(replay_tree(&tree, when));
}

/* Versions of the change after `since` that are neither aborted nor mere bookkeeping. */
static unsigned count_versions(int64_t since)
{
    GPtrArray *records = tree_records(&tree);
    unsigned count = 0;

    for (guint i = 0; i < records->len; i++) {
        const struct kept *kept = records->pdata[i];

        count += kept->record.when > since && !kept->aborted && kept->record.op != WB_OP_NONE;
    }
    g_ptr_array_unref(records);
    return count;
}

/* Runs the operation in a child that dies at its `at`-th system call; false: it ran to its end. */
static bool run_and_crash(unsigned op, int at)
{
    int status;
    pid_t child;

    tree_release(&tree);
    tree.store = wb_store_free(tree.store);
    child = fork();
    if (child == 0) {
        tree_open_store(&tree);
        countdown = at;
        status = operations[op].run();
        countdown = -1;
        syscall(SYS_exit_group, status == 0 ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    ck_assert_int_ne(WEXITSTATUS(status), 1);
    tree_open_store(&tree);
    return WEXITSTATUS(status) == 42;
}

static bool crash_once(unsigned op, int at)
{
    g_autofree char *before = NULL, *after = NULL, *past = NULL;
    unsigned aborted = 0;
    int64_t when;
    bool crashed, same;

    make_tree();
    before = state_at(WB_WHEN_PRESENT);
    when = wb_store_tick(tree.store);
    crashed = run_and_crash(op, at);
    ck_assert_int_eq(wb_recover(tree.store, &aborted), 0);

    past = state_at(when);
    ck_assert_msg(strcmp(past, before) == 0, "%s, call %d: was\n%sbut now was\n%s", operations[op].name, at, before, past);
    after = state_at(WB_WHEN_PRESENT);
    same = strcmp(after, before) == 0;
    /* restoring begins with a removal */
    if (operations[op].run != do_restore)
        ck_assert_msg(same == (count_versions(when) == 0), "%s, call %d: %u versions, %s", operations[op].name, at,
                      count_versions(when), same ? "unchanged" : after);
    ck_assert(crashed || !same);
    if (!same && (operations[op].run == do_replace_dir || operations[op].run == do_move_dir))
        ck_assert_msg(!strstr(after, "\n/d/x "), "the replaced directory was left at the old name:\n%s", after);
    ck_assert_int_eq(wb_recover(tree.store, &aborted), 0);
    ck_assert_uint_eq(aborted, 0);
    tree_close(&tree);
    return crashed;
}

START_TEST(a_crash_anywhere_leaves_before_or_after)
{
    int at = 0;

    while (crash_once(_i, at))
        ck_assert_int_lt(++at, 40);
    ck_assert_int_ge(at, 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("recover");
    TCase *tcase = tcase_create("crash");
    SRunner *runner;
    int failed;

    tree_index_stride = 150; /* crashes before, in and after an INDEX, too */
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, a_crash_anywhere_leaves_before_or_after, 0, G_N_ELEMENTS(operations));
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Random changes of a small tree: every state that was seen as the present is found again, through
 * revisions, listings and views, in the same lines of text.
 */
#include "base/checksum.h"
#include "capture/recovery/recover.h"
#include "capture_random.h"
#include "capture_replay.h"
#include "history/history.h"
#include "maintain/rewrite/compact.h"
#include "prune_before.h"
#include <inttypes.h>
#include <sys/statvfs.h>

#define STEPS 150

static struct wb_history *history;

static void show_content(GString *text, struct wb_revision *revision, uint64_t size)
{
    struct wb_file_view *view;
    uint8_t *bytes = g_malloc(size + 1);
    uint64_t done = 0;

    ck_assert_msg(wb_file_view_open(history, revision, &view) == 0, "%s", wb_history_error());
    ck_assert_uint_eq(wb_file_view_size(view), size);
    while (done < size) {
        size_t most = (size_t)(1 + pick(200000)), step = MIN((size_t)(size - done), most);
        ssize_t n = wb_file_view_pread(view, bytes + done, step, done);

        ck_assert_msg(n == (ssize_t)step, "%s: %zd: %s", wb_revision_name(revision), n, wb_history_error());
        done += step;
    }
    ck_assert_int_eq(wb_file_view_pread(view, bytes, 1, size), 0);
    wb_file_view_free(view);
    g_string_append_printf(text, " data=%016" PRIx64, wb_checksum(bytes, size));
    g_free(bytes);
}

static void show_xattrs(GString *text, struct wb_revision *revision)
{
    char list[4096], value[4096];
    ssize_t n = wb_revision_listxattr(history, revision, list, sizeof(list));

    ck_assert_msg(n >= 0, "%zd %s", n, wb_history_error());
    ck_assert_int_eq(wb_revision_listxattr(history, revision, NULL, 0), n);
    for (ssize_t i = 0; i < n; i += (ssize_t)strlen(list + i) + 1) {
        ssize_t length = wb_revision_getxattr(history, revision, list + i, value, sizeof(value));

        ck_assert_int_ge(length, 0);
        g_string_append_printf(text, " %s=%.*s", list + i, (int)length, value);
    }
}

static void show_revision(GString *text, const char *path, struct wb_revision *revision);

/* Both ways to an entry lead to the same. */
static void show_entries(GString *text, const char *path, struct wb_revision *dir)
{
    struct wb_past_dir *past;

    ck_assert_msg(wb_past_dir_open(history, dir, &past) == 0, "%s: %s", path, wb_history_error());
    for (size_t i = 0; i < wb_past_dir_count(past); i++) {
        const char *name = wb_past_dir_name(past, i);
        g_autofree char *child_path = g_strdup_printf("%s/%s", path, name);
        struct wb_revision *listed, *child;

        ck_assert_int_eq(wb_past_dir_revision(past, i, &listed), 0);
        ck_assert_msg(wb_revision_child(history, dir, name, &child) == 0, "%s", child_path);
        ck_assert(wb_object_equal(wb_revision_object(listed), wb_revision_object(child)));
        ck_assert(wb_object_equal(wb_revision_object(listed), wb_past_dir_object(past, i)));
        ck_assert_uint_eq(wb_revision_type(listed), wb_revision_type(child));
        show_revision(text, child_path, pick(2) ? listed : child);
        wb_revision_unref(listed);
        wb_revision_unref(child);
    }
    wb_past_dir_free(past);
}

static void show_revision(GString *text, const char *path, struct wb_revision *revision)
{
    struct wb_attrs attrs;
    int r = wb_revision_attrs(history, revision, &attrs);

    ck_assert_msg(r == 0, "%s: %d %s", path, r, wb_history_error());
    ck_assert_uint_eq(attrs.mode & S_IFMT, wb_revision_type(revision));
    if (!*path) /* the other reading counts the store's own directory */
        attrs.nlink++;
    g_string_append_printf(
        text, "%s ino=%" PRIu64 " mode=%o uid=%u gid=%u nlink=%u size=%" PRIu64 " mtime=%" PRId64 " ctime=%" PRId64,
        path, wb_revision_object(revision).ino, attrs.mode, attrs.uid, attrs.gid, attrs.nlink,
        S_ISDIR(attrs.mode) ? 0 : attrs.size, attrs.mtime, attrs.ctime);
    if (S_ISREG(attrs.mode))
        show_content(text, revision, attrs.size);
    if (S_ISLNK(attrs.mode)) {
        g_autofree char *target = NULL;

        ck_assert_msg(wb_revision_readlink(history, revision, &target) == 0, "%s", wb_history_error());
        g_string_append_printf(text, " -> %s", target);
    }
    show_xattrs(text, revision);
    g_string_append_c(text, '\n');
    if (S_ISDIR(attrs.mode))
        show_entries(text, path, revision);
}

static char *state_at(int64_t when)
{
    GString *text = g_string_new("");
    struct wb_revision *root;

    ck_assert_int_eq(wb_revision_root(history, when, &root), 0);
    show_revision(text, "", root);
    wb_revision_unref(root);
    return g_string_free(text, FALSE);
}

/* Shifting the result for its present path leads to the same object, or to none that was born later. */
static void check_shifts(int64_t when)
{
    struct wb_revision *root;

    list_all();
    ck_assert_int_eq(wb_revision_root(history, WB_WHEN_PRESENT, &root), 0);
    for (guint i = 0; i < model.paths->len; i++) {
        g_auto(GStrv) parts = g_strsplit(model.paths->pdata[i], "/", -1);
        struct wb_revision *revision = wb_revision_ref(root), *then = NULL, *back = NULL;
        int r;

        for (char **part = parts; *part; part++) {
            struct wb_revision *child;

            ck_assert_int_eq(wb_revision_child(history, revision, *part, &child), 0);
            wb_revision_unref(revision);
            revision = child;
        }
        r = wb_revision_shift(history, revision, when, &then);
        ck_assert_msg(r == 0 || r == WB_ABSENT, "%s: %d %s", (char *)model.paths->pdata[i], r, wb_history_error());
        if (r == 0) {
            ck_assert(wb_object_equal(wb_revision_object(then), wb_revision_object(revision)));
            ck_assert_int_eq(wb_revision_when(then), when);
            /* A file with several names may have lost the one it had then. */
            r = wb_revision_shift(history, then, WB_WHEN_PRESENT, &back);
            ck_assert(r == 0 || (r == WB_ABSENT && wb_revision_type(revision) != S_IFDIR));
            ck_assert(r != 0 || wb_object_equal(wb_revision_object(back), wb_revision_object(revision)));
        }
        wb_revision_unref(back);
        wb_revision_unref(then);
        wb_revision_unref(revision);
    }
    wb_revision_unref(root);
}

static void reopen(void)
{
    unsigned aborted = 1;

    wb_history_free(history);
    model.tree.store = wb_store_free(model.tree.store);
    tree_open_store(&model.tree);
    ck_assert_int_eq(wb_recover(model.tree.store, &aborted), 0);
    ck_assert_int_eq(wb_history_open(&history, model.tree.store), 0);
}

static void check_state(int seed, int number, int64_t when, const char *expected)
{
    g_autofree char *past = state_at(when);

    if (strcmp(past, expected) != 0) {
        g_file_set_contents("/tmp/wayback-history-expected", expected, -1, NULL);
        g_file_set_contents("/tmp/wayback-history-found", past, -1, NULL);
    }
    ck_assert_msg(strcmp(past, expected) == 0, "seed %d, state %d differs: see /tmp/wayback-history-*", seed,
                  number);
}

START_TEST(every_state_is_found_again)
{
    g_autofree char **states = g_new0(char *, STEPS);
    g_autofree int64_t *whens = g_new0(int64_t, STEPS);

    static const uint64_t strides[] = {700, 0, 150, 6000, 70000};

    /* An INDEX after every few changes, so that hardly any walk is without one. */
    tree_index_stride = strides[_i % 5];
    model.rand = g_rand_new_with_seed(_i + 101);
    tree_open(&model.tree);
    ck_assert_int_eq(wb_history_open(&history, model.tree.store), 0);
    wb_change_init(&model.change, model.tree.store);
    for (int i = 0; i < STEPS; i++) {
        step();
        states[i] = replay_tree(&model.tree, WB_WHEN_PRESENT);
        whens[i] = wb_store_tick(model.tree.store);
        check_state(_i, i, whens[i], states[i]);
        if (!pick(10))
            check_state(_i, i, whens[i / 2], states[i / 2]);
        if (!pick(40))
            reopen();
    }
    for (int i = 0; i < STEPS; i++) {
        check_state(_i, i, whens[i], states[i]);
        if (i % 10 == 0)
            check_shifts(whens[i]);
        g_free(states[i]);
    }
    wb_history_free(history);
    tree_close(&model.tree);
    g_rand_free(model.rand);
}
END_TEST

/* ---- pruning by age ---------------------------------------------------------------------------- */

/* If there is none, large logs are pruned in place, and others are left as they are. */
static bool has_room = true;

int fstatvfs(int fd, struct statvfs *ret)
{
    fsblkcnt_t blocks = 1u << 30;

    *ret = (struct statvfs){.f_bsize = 4096, .f_frsize = 4096, .f_blocks = blocks};
    ret->f_bfree = ret->f_bavail = has_room ? blocks : 0;
    return 0;
}

static void prune(int64_t before, bool dry_run, struct wb_prune_count *count)
{
    *count = prune_before(model.tree.store, before, dry_run);
    ck_assert_msg(count->kept == 0 || (!has_room && count->error == -ENOSPC), "%s", g_strerror(-count->error));
}

static void pack_all(void)
{
    struct wb_compact compact = {.before = WB_WHEN_PRESENT};

    for (unsigned i = 0; i < WB_SHARDS; i++)
        ck_assert_int_eq(wb_compact_shard(model.tree.store, &compact, i, INT64_MIN, WB_WHEN_PRESENT), 0);
}

static void check_refused(int64_t when)
{
    struct wb_revision *root;

    ck_assert_int_eq(wb_revision_root(history, when, &root), -EIO);
    ck_assert_ptr_nonnull(strstr(wb_history_error(), "was forgotten"));
}

START_TEST(the_rest_is_kept)
{
    g_autofree char **states = g_new0(char *, STEPS);
    g_autofree int64_t *whens = g_new0(int64_t, STEPS);
    static const uint64_t strides[] = {700, 0, 150, 6000, 70000};
    struct wb_prune_count count, would;
    int from = 0;

    tree_index_stride = strides[_i % 5];
    model.rand = g_rand_new_with_seed(_i + 701);
    tree_open(&model.tree);
    ck_assert_int_eq(wb_history_open(&history, model.tree.store), 0);
    wb_change_init(&model.change, model.tree.store);
    for (int i = 0; i < STEPS; i++) {
        step();
        states[i] = replay_tree(&model.tree, WB_WHEN_PRESENT);
        whens[i] = wb_store_tick(model.tree.store);
        if (!pick(25))
            pack_all();
        if (!pick(25)) {
            from += (int)pick((unsigned)(i - from + 1));
            if (pick(2)) {
                has_room = false;
                prune(whens[from], false, &count);
                for (int k = from; k <= i; k += 1 + (int)pick(5))
                    check_state(_i, k, whens[k], states[k]);
                has_room = true;
            }
            prune(whens[from], true, &would);
            prune(whens[from], false, &count);
            ck_assert_uint_eq(count.bodies, would.bodies);
            ck_assert_uint_eq(count.changed, would.changed);
            for (int k = 0; k <= i; k += 1 + (int)pick(5))
                if (k < from)
                    check_refused(whens[k]);
                else
                    check_state(_i, k, whens[k], states[k]);
            check_state(_i, from, whens[from], states[from]);
            check_shifts(whens[from]);
            /* There is nothing left to do. */
            prune(whens[from], false, &count);
            ck_assert_uint_eq(count.bodies, 0);
            ck_assert_uint_eq(count.changed, 0);
        }
        if (!pick(40))
            reopen();
    }
    for (int i = 0; i < STEPS; i++) {
        if (i < from)
            check_refused(whens[i]);
        else
            check_state(_i, i, whens[i], states[i]);
        g_free(states[i]);
    }
    wb_history_free(history);
    tree_close(&model.tree);
    g_rand_free(model.rand);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("history_model");
    TCase *tcase = tcase_create("model");
    SRunner *runner;
    int failed;

    model_init();
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, every_state_is_found_again, 0, amount(10, 5));
    tcase_add_loop_test(tcase, the_rest_is_kept, 0, amount(5, 3));
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

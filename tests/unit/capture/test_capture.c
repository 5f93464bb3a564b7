/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The records of each operation, their logs, and the refused operations. */
#include "capture_ops.h"
#include "capture_replay.h"
#include "prune_before.h"
#include "store/object/catalog_path.h"
#include <signal.h>
#include <sys/resource.h>

static struct tree tree;
static GPtrArray *last;

static void setup(void)
{
    tree_open(&tree);
    ck_assert_int_eq(mkdirat(tree.fd, "d", 0755) | mkdirat(tree.fd, "d/sub", 0755) | mkdirat(tree.fd, "e", 0755), 0);
    close(openat(tree.fd, "d/f", O_CREAT | O_RDWR, 0644));
}

static void teardown(void)
{
    if (last)
        g_ptr_array_unref(last);
    last = NULL;
    tree_close(&tree);
}

/* The records of the newest change. */
static const GPtrArray *newest(void)
{
    if (last)
        g_ptr_array_unref(last);
    return last = tree_last_change(&tree);
}

static guint count_records(void)
{
    GPtrArray *all = tree_records(&tree);
    guint count = all->len;

    g_ptr_array_unref(all);
    return count;
}

static int content(const char *path, const struct wb_overwrite *region, int result)
{
    struct wb_target target;
    struct wb_change change;
    int fd = tree_target(&tree, path, O_RDWR, &target);
    int r = wb_capture_content(tree.store, &change, &target, fd, region, 0);

    if (r == 0 && result == 0) {
        if (region->op == WB_OP_WRITE)
            ck_assert_int_eq(wb_pwrite_full(fd, region->new_data, region->length, region->offset), 0);
        else
            ck_assert_int_eq(ftruncate(fd, (off_t)region->size_after), 0);
    }
    wb_capture_end(&change, result);
    close(fd);
    return r;
}

static int overwrite(const char *path, const char *data, uint64_t offset, uint64_t size_after)
{
    struct wb_overwrite region = {
        .op = WB_OP_WRITE, .offset = offset, .length = strlen(data), .size_after = size_after, .new_data = data};

    return content(path, &region, 0);
}

static int cut(const char *path, uint64_t size_after)
{
    struct wb_overwrite region = {.op = WB_OP_TRUNCATE, .offset = size_after, .size_after = size_after};

    return content(path, &region, 0);
}

static int move(const char *from, const char *to, unsigned flags)
{
    const char *old_name, *new_name;
    struct wb_dir *old_dir = tree_parent(&tree, from, &old_name), *new_dir = tree_parent(&tree, to, &new_name);

    return wb_capture_rename(tree.store, old_dir, old_name, new_dir, new_name, flags, NULL, NULL, 7);
}

static bool has_undo(const char *path)
{
    return wb_store_has_log(tree.store, tree_object(&tree, path), WB_FILE_UNDO) == 1;
}

START_TEST(a_birth_makes_the_catalogs_of_all_ancestors)
{
    struct wb_dir *dir = tree_dir(&tree, "d/sub");
    struct wb_change change;
    GPtrArray *all;
    const struct kept *kept;

    ck_assert_int_eq(wb_capture_birth(tree.store, &change, dir, "new", WB_OP_CREATE, 7), 0);
    wb_capture_end(&change, 0);
    all = tree_records(&tree);
    ck_assert_uint_eq(all->len, 4);
    for (guint i = 0; i < 3; i++)
        ck_assert_int_eq(((struct kept *)all->pdata[i])->record.type, WB_REC_PLACE);
    kept = all->pdata[3];
    ck_assert_int_eq(kept->record.type, WB_REC_NAME);
    ck_assert_uint_eq(kept->record.actor, 7);
    ck_assert(!kept->record.name.slots[0].present);
    ck_assert_str_eq(kept->record.name.slots[0].name, "new");
    ck_assert(S_ISDIR(kept->record.name.dir.mode));
    g_ptr_array_unref(all);
}
END_TEST

START_TEST(a_name_that_is_taken_is_refused_and_leaves_no_record)
{
    struct wb_change change;

    ck_assert_int_eq(wb_capture_birth(tree.store, &change, tree_dir(&tree, "d"), "f", WB_OP_CREATE, 0), -EEXIST);
    ck_assert_int_eq(change.when, 0);
    wb_capture_end(&change, -EEXIST);
    ck_assert_uint_eq(count_records(), 0);
}
END_TEST

START_TEST(growth_is_recorded_in_the_catalog_and_needs_no_log)
{
    ck_assert_int_eq(overwrite("d/f", "hello", 0, 5), 0);
    ck_assert_int_eq(overwrite("d/f", "hello", 0, 5), 0); /* equal bytes: times change all the same */
    ck_assert_int_eq(cut("d/f", 100), 0);
    ck_assert(!has_undo("d/f"));
    ck_assert_int_eq(((struct kept *)newest()->pdata[0])->record.type, WB_REC_ATTR);
    ck_assert_uint_eq(((struct kept *)newest()->pdata[0])->record.attr.attrs.size, 5);
}
END_TEST

START_TEST(only_bytes_that_change_are_kept)
{
    const struct wb_rec_data *data;

    ck_assert_int_eq(overwrite("d/f", "hello world", 0, 11), 0);
    ck_assert_int_eq(overwrite("d/f", "hello wOrld, and more", 0, 21), 0);
    ck_assert_int_eq(((struct kept *)newest()->pdata[0])->record.type, WB_REC_DATA);
    data = &((struct kept *)last->pdata[0])->record.data;
    ck_assert_uint_eq(data->count, 1);
    ck_assert_uint_eq(data->extents[0].offset, 7);
    ck_assert_uint_eq(data->extents[0].length, 1);
    ck_assert_uint_eq(((struct kept *)last->pdata[0])->payload[0], 'o');
    ck_assert_uint_eq(data->size_after, 21);
    ck_assert_uint_eq(data->attrs.size, 11);
}
END_TEST

START_TEST(big_losses_are_recorded_in_parts_with_one_when)
{
    size_t length = 3500000, kept_bytes = 0;
    g_autofree char *data = g_malloc(length + 1);
    uint64_t end = 10;

    memset(data, 'x', length);
    data[length] = '\0';
    ck_assert_int_eq(overwrite("d/f", data, 0, length), 0);
    ck_assert_int_eq(cut("d/f", 10), 0);
    newest();
    for (guint i = 0; i < last->len; i++) {
        const struct wb_record *record = &((struct kept *)last->pdata[i])->record;

        ck_assert_int_eq(record->type, WB_REC_DATA);
        ck_assert_int_eq(!!(record->flags & WB_RECORD_MORE), i + 1 < last->len);
        for (uint32_t k = 0; k < record->data.count; k++) {
            ck_assert_uint_eq(record->data.extents[k].offset, end);
            end += record->data.extents[k].length;
            kept_bytes += record->data.extents[k].kind == WB_EXTENT_INLINE ? record->data.extents[k].length : 0;
        }
    }
    ck_assert_uint_eq(end, length);
    if (!tree.store->can_clone) {
        ck_assert_uint_ge(last->len, 4);
        ck_assert_uint_eq(kept_bytes, length - 10);
    } else {
        ck_assert_uint_lt(kept_bytes, 16384); /* the edges: all else is shared */
    }
}
END_TEST

START_TEST(holes_cost_nothing)
{
    ck_assert_int_eq(cut("d/f", 1 << 30), 0);
    ck_assert_int_eq(overwrite("d/f", "data", 500 << 20, 1 << 30), 0);
    ck_assert_int_eq(cut("d/f", 0), 0);
    newest();
    ck_assert_uint_eq(last->len, 1);
    ck_assert_uint_lt(((struct kept *)last->pdata[0])->record.total, 4096);
}
END_TEST

START_TEST(a_change_that_failed_is_aborted_in_its_log)
{
    struct wb_overwrite region = {.op = WB_OP_WRITE, .length = 3, .size_after = 5, .new_data = "HEL"};
    GPtrArray *all;

    ck_assert_int_eq(overwrite("d/f", "hello", 0, 5), 0);
    ck_assert_int_eq(content("d/f", &region, -ENOSPC), 0);
    all = tree_records(&tree);
    ck_assert_int_eq(((struct kept *)all->pdata[all->len - 1])->record.type, WB_REC_ABORT);
    ck_assert(((struct kept *)all->pdata[all->len - 2])->aborted);
    g_ptr_array_unref(all);
}
END_TEST

START_TEST(chmod_keeps_the_acl_it_is_going_to_change)
{
    /* version 2; user::rw- user:1:rwx group::r-- mask::rwx other::r-- */
    static const uint8_t acl[] = {2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2,  0, 7, 0, 1,   0,   0,   0,   4,  0,
                                  4, 0, 255, 255, 255, 255, 16, 0, 7, 0, 255, 255, 255, 255, 32, 0, 4, 0, 255, 255, 255, 255};
    struct wb_target target;
    struct wb_change change;
    int fd = tree_target(&tree, "d/f", O_RDWR, &target);
    const struct kept *kept;

    if (fsetxattr(fd, "system.posix_acl_access", acl, sizeof(acl), 0) < 0)
        return; /* a file system without ACLs */
    ck_assert_int_eq(wb_capture_attrs(tree.store, &change, &target, fd, WB_OP_CHMOD, 0), 0);
    wb_capture_end(&change, 0);
    kept = kept_find(newest(), WB_REC_XATTR, target.object, WB_FILE_UNDO);
    ck_assert_ptr_nonnull(kept);
    ck_assert_int_eq(kept->record.op, WB_OP_CHMOD);
    ck_assert_uint_eq(kept->record.payload_length, sizeof(acl));
    close(fd);
}
END_TEST

START_TEST(a_lost_link_is_seen_through_the_other)
{
    struct wb_object file = tree_object(&tree, "d/f");
    const struct kept *kept;

    ck_assert_int_eq(linkat(tree.fd, "d/f", tree.fd, "e/g", 0), 0);
    ck_assert_int_eq(wb_capture_remove(tree.store, tree_dir(&tree, "d"), "f", false, 0), 0);
    kept = kept_find(newest(), WB_REC_ATTR, file, WB_FILE_UNDO);
    ck_assert_ptr_nonnull(kept);
    ck_assert_uint_eq(kept->record.attr.attrs.nlink, 2);
    kept = kept_find(last, WB_REC_NAME, tree_object(&tree, "d"), WB_FILE_CATALOG);
    ck_assert_int_eq(kept->record.name.slots[0].unbind, WB_UNBIND_KEPT);
    ck_assert_uint_eq(kept->record.name.slots[0].attrs.nlink, 2);
    /* and the graveyard's link is not counted */
    ck_assert_int_eq(wb_capture_remove(tree.store, tree_dir(&tree, "e"), "g", false, 0), 0);
    kept = kept_find(newest(), WB_REC_NAME, tree_object(&tree, "e"), WB_FILE_CATALOG);
    ck_assert_uint_eq(kept->record.name.slots[0].attrs.nlink, 1);
    ck_assert_uint_eq(last->len, 1);
}
END_TEST

START_TEST(a_directory_that_moves_leaves_its_place)
{
    struct wb_object sub = tree_object(&tree, "d/sub");
    g_autofree char *path = NULL;
    const struct kept *kept;

    ck_assert_int_eq(move("d/sub", "e/moved", 0), 0);
    newest();
    ck_assert_uint_eq(last->len, 3);
    kept = kept_find(last, WB_REC_PLACE, sub, WB_FILE_CATALOG);
    ck_assert_str_eq(kept->record.place.name, "moved");
    ck_assert_int_eq(wb_catalog_path_of(tree.store, sub, NULL, &path), 0);
    ck_assert_str_eq(path, "e/moved");
    ck_assert_int_eq(wb_capture_remove(tree.store, tree_dir(&tree, "e"), "moved", true, 0), 0);
    ck_assert_int_eq(wb_catalog_path_open_dir(tree.store, sub, NULL), WB_ABSENT);
}
END_TEST

START_TEST(rename_refuses_as_the_kernel_does)
{
    ck_assert_int_eq(linkat(tree.fd, "d/f", tree.fd, "d/same", 0), 0);
    ck_assert_int_eq(mkdirat(tree.fd, "e/full", 0755) | mkdirat(tree.fd, "e/full/x", 0755), 0);
    ck_assert_int_eq(move("d/none", "d/f", 0), -ENOENT);
    ck_assert_int_eq(move("d/f", "e", 0), -EISDIR);
    ck_assert_int_eq(move("d/sub", "d/f", 0), -ENOTDIR);
    ck_assert_int_eq(move("d/sub", "e/full", 0), -ENOTEMPTY);
    ck_assert_int_eq(move("d/f", "d/sub", RENAME_NOREPLACE), -EEXIST);
    ck_assert_int_eq(move("d/f", "d/none", RENAME_EXCHANGE), -ENOENT);
    ck_assert_int_eq(move("d/f", "d/sub", RENAME_EXCHANGE | RENAME_NOREPLACE), -EINVAL);
    ck_assert_int_eq(move("d/f", "d/same", 0), 0);
    ck_assert_int_eq(move("d/f", "d/same", RENAME_EXCHANGE), 0);
    ck_assert_uint_eq(count_records(), 0);
    /* only the kernel finds this out, after it was recorded */
    ck_assert_int_eq(move("e", "e/full/x/y", 0), -EINVAL);
    ck_assert_int_eq(((struct kept *)newest()->pdata[0])->record.type, WB_REC_ABORT);
}
END_TEST

START_TEST(a_restored_file_is_the_same_inode_and_keeps_what_it_replaces)
{
    struct wb_object file = tree_object(&tree, "d/f"), other;
    const struct kept *kept;

    close(openat(tree.fd, "e/g", O_CREAT | O_RDWR, 0644));
    other = tree_object(&tree, "e/g");
    ck_assert_int_eq(wb_capture_remove(tree.store, tree_dir(&tree, "d"), "f", false, 0), 0);
    ck_assert_int_eq(wb_capture_restore(tree.store, tree_dir(&tree, "d"), "sub", file, false, -1, NULL, 0), -EISDIR);
    ck_assert_int_eq(wb_capture_restore(tree.store, tree_dir(&tree, "e"), "g", file, false, -1, NULL, 0), 0);
    ck_assert(wb_object_equal(tree_object(&tree, "e/g"), file));
    ck_assert_int_eq(wb_grave_has(tree.store, file, false), 0);
    ck_assert_int_eq(wb_grave_has(tree.store, other, false), 1);
    kept = kept_find(newest(), WB_REC_PLACE, file, WB_FILE_UNDO);
    ck_assert_str_eq(kept->record.place.name, "g");
    /* from an existing name: another link of it */
    ck_assert_int_eq(wb_capture_restore(tree.store, tree_dir(&tree, "d"), "f", file, false,
                                        tree_dir(&tree, "e")->fd, "g", 0), 0);
    ck_assert(wb_object_equal(tree_object(&tree, "d/f"), file));
}
END_TEST

START_TEST(a_file_that_never_had_a_name_is_not_recorded)
{
    struct wb_overwrite region = {.op = WB_OP_TRUNCATE};
    struct wb_target target;
    struct wb_change change;
    int fd = tree_target(&tree, "d/f", O_RDWR, &target);

    target.unborn = true;
    ck_assert_int_eq(wb_capture_content(tree.store, &change, &target, fd, &region, 0), WB_UNCHANGED);
    wb_capture_end(&change, 0);
    ck_assert_uint_eq(count_records(), 0);
    close(fd);
}
END_TEST

/* A disk that is full: no file of the store may grow. */
static void set_full(bool full)
{
    struct rlimit limit = {.rlim_cur = full ? 1 : RLIM_INFINITY, .rlim_max = RLIM_INFINITY};

    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* A recorded change of d/f that fails when another one of d/f has come after it. */
static int64_t fail_on_a_full_disk(void)
{
    struct wb_overwrite region = {.op = WB_OP_WRITE, .length = 3, .size_after = 5, .new_data = "xyz"};
    struct wb_target target;
    struct wb_change change, other;
    int64_t when;
    int fd = tree_target(&tree, "d/f", O_RDWR, &target);

    ck_assert_int_eq(wb_capture_content(tree.store, &change, &target, fd, &region, 0), 0);
    when = change.when;
    ck_assert_int_eq(wb_capture_content(tree.store, &other, &target, fd, &region, 0), 0);
    ck_assert(wb_inflight_is_under_way(tree.store, when));
    ck_assert(!wb_inflight_is_under_way(tree.store, when - 1));
    wb_capture_end(&other, 0);
    set_full(true);
    wb_capture_end(&change, -ENOSPC);
    ck_assert(!wb_inflight_is_under_way(tree.store, when));
    wb_capture_retry(tree.store);
    set_full(false);
    close(fd);
    return when;
}

static bool is_aborted(int64_t when)
{
    GPtrArray *all = tree_records(&tree);
    bool found = false;

    for (guint i = 0; i < all->len; i++) {
        const struct kept *kept = all->pdata[i];

        found |= kept->record.type == WB_REC_ABORT && kept->record.abort.target == when;
    }
    g_ptr_array_unref(all);
    return found;
}

START_TEST(an_abort_that_found_no_space_is_written_later)
{
    struct wb_inflight_aside aside;
    int64_t when;

    overwrite("d/f", "begin", 0, 5);
    /* More often than there are slots: none may be lost. */
    for (int i = 0; i < 2 * WB_INFLIGHT_SLOTS; i++) {
        when = fail_on_a_full_disk();
        ck_assert(!is_aborted(when));
        overwrite("d/f", i % 2 ? "other" : "thing", 0, 5);
        ck_assert(is_aborted(when));
    }
    ck_assert_int_lt(wb_inflight_take_aside(tree.store, &aside), 0);
}
END_TEST

/* ---- pruning by age meanwhile ---------------------------------------------------------------- */

/* A move of d/sub that fails after its record, for another reason than lack of space. */
static void fail_to_move_on_a_full_disk(struct wb_object sub)
{
    struct wb_change change;
    struct wb_plan plan;

    wb_plan_init(&plan, tree.store, &change, WB_OP_RENAME, 0);
    wb_plan_add_place(&plan, WB_FILE_CATALOG, sub, tree_dir(&tree, "d")->object, "never");
    ck_assert_int_eq(wb_plan_write(&plan), 0);
    op_birth(&tree, "e/sub/later", WB_OP_CREATE);
    set_full(true);
    wb_capture_end(&change, -ENOSPC);
    set_full(false);
}

START_TEST(an_uncertain_place_is_not_the_only_one_kept)
{
    struct wb_object sub = tree_object(&tree, "d/sub");
    g_autofree char *path = NULL;

    op_rename(&tree, "d/sub", "e/sub", 0);
    fail_to_move_on_a_full_disk(sub);
    ck_assert_uint_gt(prune_before(tree.store, wb_store_tick(tree.store), false).logs, 0);
    wb_capture_retry(tree.store);
    ck_assert_int_eq(wb_catalog_path_of(tree.store, sub, NULL, &path), 0);
    ck_assert_str_eq(path, "e/sub");
    /* The next time it is known. */
    prune_before(tree.store, wb_store_tick(tree.store), false);
    g_clear_pointer(&path, g_free);
    ck_assert_int_eq(wb_catalog_path_of(tree.store, sub, NULL, &path), 0);
    ck_assert_str_eq(path, "e/sub");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("capture");
    TCase *tcase = tcase_create("records");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_birth_makes_the_catalogs_of_all_ancestors);
    tcase_add_test(tcase, a_name_that_is_taken_is_refused_and_leaves_no_record);
    tcase_add_test(tcase, growth_is_recorded_in_the_catalog_and_needs_no_log);
    tcase_add_test(tcase, only_bytes_that_change_are_kept);
    tcase_add_test(tcase, big_losses_are_recorded_in_parts_with_one_when);
    tcase_add_test(tcase, holes_cost_nothing);
    tcase_add_test(tcase, a_change_that_failed_is_aborted_in_its_log);
    tcase_add_test(tcase, an_uncertain_place_is_not_the_only_one_kept);
    tcase_add_test(tcase, an_abort_that_found_no_space_is_written_later);
    tcase_add_test(tcase, chmod_keeps_the_acl_it_is_going_to_change);
    tcase_add_test(tcase, a_lost_link_is_seen_through_the_other);
    tcase_add_test(tcase, a_directory_that_moves_leaves_its_place);
    tcase_add_test(tcase, rename_refuses_as_the_kernel_does);
    tcase_add_test(tcase, a_restored_file_is_the_same_inode_and_keeps_what_it_replaces);
    tcase_add_test(tcase, a_file_that_never_had_a_name_is_not_recorded);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

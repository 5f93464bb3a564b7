/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Deleted and replaced files, packed: the same content is read, whatever is forgotten, unpacked or damaged beside. */
#include "bundle_releases.h"
#include "base/cleanup.h"
#include "capture/unseen.h"
#include "maintain/erase/erase.h"
#include "maintain/usage/room.h"
#include "maintain/rewrite/tried.h"
#include "wayback/when.h"
#include <sys/syscall.h>

/* ---- syncs -------------------------------------------------------------------------------------- */

static bool writing_fails; /* files without a name are not written, and a sync of everything does not report that */
static void (*syncing)(void);
static void (*cutting)(void);
static ino_t synced; /* the last file that was synced by itself */

static bool fails(int fd)
{
    struct stat st;

    return writing_fails && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 0;
}

int syncfs(int fd)
{
    if (syncing)
        syncing();
    return writing_fails ? 0 : (int)syscall(SYS_syncfs, fd);
}

int fsync(int fd)
{
    struct stat st;

    if (fstat(fd, &st) == 0)
        synced = st.st_ino;
    if (fails(fd))
        return errno = EIO, -1;
    return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    return fsync(fd);
}

int sync_file_range(int fd, off_t offset, off_t length, unsigned flags)
{
    if (fails(fd))
        return errno = EIO, -1;
    return (int)syscall(SYS_sync_file_range, fd, offset, length, flags);
}

int ftruncate(int fd, off_t length)
{
    if (cutting)
        cutting();
    return (int)syscall(SYS_ftruncate, fd, length);
}

START_TEST(test_releases_are_little_more_than_one)
{
    struct wb_compact done = compact(0, NULL), stats;

    ck_assert_uint_eq(done.bodies.files, (RELEASES - 1) * NAMES);
    ck_assert_uint_eq(done.bodies.changed, (RELEASES - 1) * NAMES);
    ck_assert_uint_lt(done.bodies.new_size * 2 * (RELEASES - 1), done.bodies.old_size);
    for (unsigned j = 0; j < NAMES; j++) {
        ck_assert(has(objects[0][j], WB_FILE_BUNDLE));
        ck_assert_uint_eq(length_of(objects[0][j]), 0);
    }
    check_all();
    stats = compact(WB_COMPACT_STATS, NULL);
    ck_assert_uint_eq(stats.bodies.packed, stats.bodies.files);
    ck_assert_uint_eq(stats.bodies.length, done.bodies.old_size);
    /* There is nothing more to do. */
    ck_assert_uint_eq(compact(0, NULL).bodies.changed, 0);
}
END_TEST

START_TEST(test_an_open_file_is_readable_while_it_is_packed_and_unpacked)
{
    struct wb_revision *revision = find(name_of(0), moments[0], NULL);
    size_t length = strlen(texts[0][0]);
    g_autofree char *data = g_malloc(length);
    struct wb_file_view *view, *packed;

    ck_assert_int_eq(wb_file_view_open(history, revision, &view), 0);
    compact(0, NULL);
    ck_assert_int_eq(wb_file_view_pread(view, data, length, 0), (ssize_t)length);
    ck_assert_mem_eq(data, texts[0][0], length);
    ck_assert_int_eq(wb_file_view_open(history, revision, &packed), 0);
    ck_assert(wb_file_view_is_present(packed));
    compact(WB_COMPACT_UNDO, NULL);
    ck_assert_int_eq(wb_file_view_pread(packed, data, length, 0), (ssize_t)length);
    ck_assert_mem_eq(data, texts[0][0], length);
    wb_file_view_free(view);
    wb_file_view_free(packed);
    wb_revision_unref(revision);
    for (unsigned j = 0; j < NAMES; j++) {
        ck_assert(!has(objects[0][j], WB_FILE_BUNDLE) && !has(objects[0][j], WB_FILE_BUNDLE_OLD));
        ck_assert_uint_eq(length_of(objects[0][j]), strlen(texts[0][j]));
    }
    check_all();
}
END_TEST

START_TEST(test_a_restored_file_is_whole_and_its_bundle_is_remembered)
{
    struct wb_dir *dir;
    int64_t before;

    compact(0, NULL);
    dir = tree_dir(&tree, "d");
    before = now();
    ck_assert_int_eq(wb_capture_restore(tree.store, dir, "f1", objects[1][1], false, -1, NULL, 0), 0);
    ck_assert(wb_object_equal(tree_object(&tree, "d/f1"), objects[1][1]));
    ck_assert(!has(objects[1][1], WB_FILE_BUNDLE) && has(objects[1][1], WB_FILE_BUNDLE_OLD));
    check_all();
    expect_content("d/f1", before, texts[RELEASES - 1][1]);
    expect_content("d/f1", now(), texts[1][1]);
    /* It changes, is deleted again, and is packed again. */
    op_write(&tree, "d/f1", 3, "CHANGED");
    op_remove(&tree, "d/f1", false);
    compact(0, NULL);
    ck_assert(has(objects[1][1], WB_FILE_BUNDLE) && !has(objects[1][1], WB_FILE_BUNDLE_OLD));
    check_all();
}
END_TEST

/* RESTORE, in a thread of its own: it waits before it writes the record, with the file still in the graveyard. */
static void *restore_f1(void *data)
{
    *(int *)data = wb_capture_restore(tree.store, tree_dir(&tree, "d"), "f1", objects[1][1], false, -1, NULL, 0);
    return NULL;
}

START_TEST(test_a_file_being_restored_is_not_emptied)
{
    struct wb_compact again = {.flags = WB_COMPACT_IDLE, .before = WB_WHEN_PRESENT};
    struct wb_log *log;
    pthread_t thread;
    int r = -1;

    ck_assert_int_eq(wb_store_get_log(tree.store, tree_object(&tree, "d"), WB_FILE_CATALOG, false, &log), 0);
    pthread_mutex_lock(&log->lock);
    ck_assert_int_eq(pthread_create(&thread, NULL, restore_f1, &r), 0);
    /* Were it not there yet, the file would be unpacked again: then this shows nothing. */
    g_usleep(200000);
    wb_compact_bodies(tree.store, &again, tree_object(&tree, "d"), NULL);
    pthread_mutex_unlock(&log->lock);
    wb_store_put_log(tree.store, log);
    pthread_join(thread, NULL);
    ck_assert_int_eq(r, 0);
    ck_assert(wb_object_equal(tree_object(&tree, "d/f1"), objects[1][1]));
    ck_assert(!has(objects[1][1], WB_FILE_BUNDLE));
    expect_content("d/f1", now(), texts[1][1]);
    check_all();
}
END_TEST

/* Called now and then while nothing is locked, so any change may happen. */
static int asks_left;
static bool happened;

static bool bring_back(void *data)
{
    if (asks_left-- == 0) {
        ck_assert_int_eq(wb_capture_restore(tree.store, tree_dir(&tree, "d"), "f1", objects[1][1], false, -1, NULL, 0),
                         0);
        happened = true;
    }
    return false;
}

START_TEST(test_a_file_restored_meanwhile_is_whole_and_nothing_is_packed_with_it)
{
    struct wb_compact again = {.before = WB_WHEN_PRESENT, .stop = bring_back};

    happened = false;
    for (asks_left = _i * 7; !happened; asks_left = 0) {
        int r = wb_compact_bodies(tree.store, &again, tree_object(&tree, "d"), NULL);

        if (happened)
            ck_assert_int_eq(r, -ECANCELED);
        check_all();
        compact(WB_COMPACT_UNDO, NULL);
    }
    ck_assert(wb_object_equal(tree_object(&tree, "d/f1"), objects[1][1]));
    ck_assert(!has(objects[1][1], WB_FILE_BUNDLE));
    expect_content("d/f1", now(), texts[1][1]);
    compact(0, NULL);
    check_all();
}
END_TEST

/* Whether any bundle has an object's content. */
static bool is_somewhere(struct wb_object object)
{
    for (unsigned i = 0; i < RELEASES; i++) {
        for (unsigned j = 0; j < NAMES; j++) {
            struct wb_bundle *bundle;
            bool found;

            if (wb_bundle_open(tree.store, objects[i][j], WB_FILE_BUNDLE, &bundle) != 0)
                continue;
            found = wb_bundle_find(bundle, object);
            wb_bundle_free(bundle);
            if (found)
                return true;
        }
    }
    return false;
}

/* As a copy of the store has it that was made without its hard links. */
static void part_from_bundle(struct wb_object object)
{
    char path[WB_OBJECT_PATH_MAX];
    g_autofree char *full = NULL, *data = NULL;
    gsize length;

    wb_object_path(object, WB_FILE_BUNDLE, path);
    full = g_build_filename(tree.path, WB_STORE_NAME, path, NULL);
    ck_assert(g_file_get_contents(full, &data, &length, NULL));
    ck_assert_int_eq(unlink(full), 0);
    ck_assert(g_file_set_contents(full, data, (gssize)length, NULL));
}

START_TEST(test_an_erased_file_is_in_no_bundle_and_its_neighbours_are_whole)
{
    struct wb_revision *dir;
    struct wb_error why;

    compact(0, NULL);
    ck_assert(is_somewhere(objects[0][3]));
    part_from_bundle(objects[2][5]);
    op_remove(&tree, "d/f3", false);
    dir = find("d", WB_WHEN_PRESENT, NULL);
    ck_assert_int_eq(wb_erase(history, dir, "f3", 0, 0, 0, NULL, &why), 0);
    wb_revision_unref(dir);
    for (unsigned i = 0; i + 1 < RELEASES; i++) {
        ck_assert(!has(objects[i][3], WB_FILE_BUNDLE) && !has(objects[i][3], WB_FILE_BUNDLE_OLD));
        ck_assert(!is_somewhere(objects[i][3]));
    }
    for (unsigned i = 0; i < RELEASES; i++)
        for (unsigned j = 0; j < NAMES; j++)
            if (j != 3)
                expect_content(name_of(j), moments[i], texts[i][j]);
}
END_TEST

static unsigned gave_way;

static void give_way(void *data)
{
    ck_assert_int_eq(pthread_mutex_trylock(&tree.store->rewriting), 0);
    pthread_mutex_unlock(&tree.store->rewriting);
    gave_way++;
}

static enum wb_compact_mode mode_by_name(void *data, struct wb_object dir, const char *name)
{
    static const char *const names[] = {"f1", "f2", "f3", NULL};
    unsigned i = 0;

    while (names[i] && strcmp(names[i], name) != 0)
        i++;
    return (enum wb_compact_mode)i;
}

START_TEST(test_in_the_background_it_locks_nothing_while_others_wait_and_packs_as_configured)
{
    struct wb_compact some = {
        .flags = WB_COMPACT_IDLE, .before = WB_WHEN_PRESENT, .give_way = give_way, .mode = mode_by_name};

    gave_way = 0;
    ck_assert_int_eq(wb_compact_bodies(tree.store, &some, tree_object(&tree, "d"), NULL), 0);
    ck_assert_uint_gt(gave_way, RELEASES * NAMES);
    for (unsigned j = 0; j < NAMES; j++) {
        struct wb_bundle *bundle;
        bool is_key_plain = false, refers = false;

        ck_assert_int_eq(has(objects[0][j], WB_FILE_BUNDLE), j != 1);
        ck_assert_int_eq(length_of(objects[0][j]) == 0, j != 1);
        if (wb_bundle_open(tree.store, objects[0][j], WB_FILE_BUNDLE, &bundle) != 0)
            continue;
        for (uint32_t i = 0; i < bundle->bytes.map->head.count; i++) {
            is_key_plain |= bundle->bytes.map->chunks[i].method == WB_PACK_CHECKED;
            refers |= bundle->bytes.map->chunks[i].reference > 0;
        }
        ck_assert_int_eq(is_key_plain, j == 3);
        ck_assert_int_eq(refers, j != 2);
        wb_bundle_free(bundle);
    }
    check_all();
}
END_TEST

START_TEST(test_a_file_that_did_not_get_smaller_is_not_tried_again_in_the_background)
{
    struct wb_compact again = {.flags = WB_COMPACT_IDLE, .before = WB_WHEN_PRESENT, .give_way = give_way};

    again.tried = wb_tried_new();
    for (unsigned i = 0; i < (RELEASES - 1) * NAMES; i++)
        wb_tried_note(again.tried, objects[i / NAMES][i % NAMES], WB_FILE_DATA, 0);
    gave_way = 0;
    ck_assert_int_eq(wb_compact_bodies(tree.store, &again, tree_object(&tree, "d"), NULL), 0);
    ck_assert_uint_eq(gave_way, 0);
    ck_assert(!has(objects[0][1], WB_FILE_BUNDLE));
    g_usleep(20000);
    op_remove(&tree, "d/f1", false);
    ck_assert_int_eq(wb_compact_bodies(tree.store, &again, tree_object(&tree, "d"), NULL), 0);
    ck_assert(has(objects[0][1], WB_FILE_BUNDLE) && !has(objects[0][2], WB_FILE_BUNDLE));
    g_hash_table_unref(again.tried);
    check_all();
}
END_TEST

/* Of a large file that cannot be packed, only a part is written to find that out. */
START_TEST(test_random_bytes_are_not_packed)
{
    g_autofree char *bytes = g_malloc(12u << 20);
    struct wb_bundle_job job = {.store = tree.store};
    struct wb_bundle_member member = {.size = 12u << 20};
    uint64_t size = 0;

    job.members = g_array_new(FALSE, FALSE, sizeof(struct wb_bundle_member));
    for (size_t i = 0; i < 12u << 20; i += 8)
        memcpy(bytes + i, &(uint64_t){g_random_int() | (uint64_t)g_random_int() << 32}, 8);
    for (size_t i = 0; i < 12u << 20; i++)
        bytes[i] = bytes[i] ? bytes[i] : 1;
    bytes[(12u << 20) - 1] = '\0';
    op_make(&tree, "new", bytes);
    member.object = tree_object(&tree, "new");
    member.size = strlen(bytes);
    op_remove(&tree, "new", false);
    g_array_append_val(job.members, member);
    job.to = open(tree.path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    ck_assert_int_eq(wb_bundle_write(&job, &size), 0);
    ck_assert_uint_gt(size, member.size);
    job.may_be_waste = true;
    ck_assert_int_eq(wb_bundle_write(&job, &size), WB_BUNDLE_WASTE);
    ck_assert_uint_lt(size, member.size);
    close(job.to);
    g_array_unref(job.members);
}
END_TEST

static bool erase_f3(void *data)
{
    struct wb_error why;

    if (asks_left-- == 0) {
        struct wb_revision *dir = find("d", WB_WHEN_PRESENT, NULL);

        ck_assert_int_eq(wb_erase(history, dir, "f3", 0, 0, 0, NULL, &why), 0);
        wb_revision_unref(dir);
        happened = true;
    }
    return false;
}

START_TEST(test_a_file_erased_meanwhile_is_in_no_bundle)
{
    struct wb_compact again = {.before = WB_WHEN_PRESENT, .stop = erase_f3};

    op_remove(&tree, "d/f3", false);
    asks_left = _i * 9;
    happened = false;
    wb_compact_bodies(tree.store, &again, tree_object(&tree, "d"), NULL);
    ck_assert(happened);
    compact(0, NULL);
    ck_assert(has(objects[0][4], WB_FILE_BUNDLE));
    for (unsigned i = 0; i < RELEASES; i++) {
        ck_assert(!is_somewhere(objects[i][3]));
        for (unsigned j = 0; j < NAMES; j++)
            if (j != 3)
                expect_content(name_of(j), moments[i], texts[i][j]);
    }
}
END_TEST

START_TEST(test_directories_are_synced_together_or_not_at_all)
{
    struct wb_compact some = {.before = WB_WHEN_PRESENT};

    wb_compact_begin(&some, tree.store);
    ck_assert_int_eq(wb_compact_bodies(tree.store, &some, tree_object(&tree, "d"), "f1"), 0);
    ck_assert_int_eq(wb_compact_bodies(tree.store, &some, tree_object(&tree, "d"), "f2"), 0);
    ck_assert_uint_eq(some.bodies.changed, 0);
    ck_assert(!has(objects[0][1], WB_FILE_BUNDLE));
    ck_assert_int_eq(wb_compact_finish(&some, 0), 0);
    ck_assert_uint_eq(some.bodies.changed, 2 * (RELEASES - 1));
    ck_assert(has(objects[0][1], WB_FILE_BUNDLE) && has(objects[0][2], WB_FILE_BUNDLE));
    ck_assert_uint_eq(length_of(objects[0][2]), 0);
    check_all();
}
END_TEST

/* vprune was killed between the two, or the power failed if they are on two devices. */
/* It was restored to another directory: both have a record of its removal. */
START_TEST(test_a_file_deleted_in_two_directories_is_packed_once)
{
    struct wb_compact some = {.before = WB_WHEN_PRESENT};
    g_autofree char *text = g_strnfill(9000, 'x');
    struct wb_object moved;

    op_birth(&tree, "e", WB_OP_MKDIR);
    op_make(&tree, "d/moves", text);
    moved = tree_object(&tree, "d/moves");
    op_remove(&tree, "d/moves", false);
    ck_assert_int_eq(wb_capture_restore(tree.store, tree_dir(&tree, "e"), "moves", moved, false, -1, NULL, 0), 0);
    op_remove(&tree, "e/moves", false);
    wb_compact_begin(&some, tree.store);
    ck_assert_int_eq(wb_compact_bodies(tree.store, &some, tree_object(&tree, "d"), NULL), 0);
    ck_assert_int_eq(wb_compact_bodies(tree.store, &some, tree_object(&tree, "e"), NULL), 0);
    ck_assert_int_eq(wb_compact_finish(&some, 0), 0);
    ck_assert_uint_eq(some.bodies.changed, NAMES * (RELEASES - 1) + 1);
    ck_assert(has(moved, WB_FILE_BUNDLE));
    ck_assert_uint_eq(length_of(moved), 0);
    check_all();
}
END_TEST

START_TEST(test_a_name_of_a_bundle_without_its_file_is_no_obstacle)
{
    char path[WB_OBJECT_PATH_MAX];
    struct wb_revision *dir;
    struct wb_error why;

    compact(0, NULL);
    wb_object_path(objects[0][5], WB_FILE_DATA, path);
    ck_assert_int_eq(unlinkat(tree.store->grave_fd, path, 0), 0);
    op_make(&tree, "new", "another one altogether, at last, which is long enough to be something");
    op_rename(&tree, "new", "d/f4", 0);
    compact(0, NULL);
    op_remove(&tree, "d/f3", false);
    dir = find("d", WB_WHEN_PRESENT, NULL);
    ck_assert_int_eq(wb_erase(history, dir, "f3", 0, 0, 0, NULL, &why), 0);
    wb_revision_unref(dir);
    ck_assert(!has(objects[0][5], WB_FILE_BUNDLE));
    ck_assert(!is_somewhere(objects[0][3]));
    for (unsigned i = 0; i < RELEASES; i++)
        for (unsigned j = 0; j < NAMES; j++)
            if (j != 3 && (i != 0 || j != 5))
                expect_content(name_of(j), moments[i], texts[i][j]);
}
END_TEST

START_TEST(test_a_bundle_with_new_files_replaces_the_old_one)
{
    struct stat first, second;

    compact(0, "f1");
    ck_assert_int_eq(wb_bundle_stat(tree.store, objects[0][1], WB_FILE_BUNDLE, &first), 0);
    op_make(&tree, "new", "another one altogether, at last, which is long enough to be something");
    op_rename(&tree, "new", "d/f1", 0);
    compact(0, NULL);
    ck_assert_int_eq(wb_bundle_stat(tree.store, objects[0][1], WB_FILE_BUNDLE, &second), 0);
    ck_assert_uint_ne(first.st_ino, second.st_ino);
    ck_assert_int_eq(wb_bundle_stat(tree.store, objects[RELEASES - 1][1], WB_FILE_BUNDLE, &first), 0);
    ck_assert_uint_eq(first.st_ino, second.st_ino);
    check_all();
}
END_TEST

static void damage(struct wb_object object)
{
    char path[WB_OBJECT_PATH_MAX];
    struct stat st;
    int fd;

    wb_object_path(object, WB_FILE_BUNDLE, path);
    fd = openat(tree.store->dir_fd, path, O_WRONLY | O_CLOEXEC);
    ck_assert_int_eq(fstat(fd, &st), 0);
    for (off_t at = 4096; at < st.st_size - 4096; at += 4096)
        ck_assert_int_eq(pwrite(fd, "damaged", 7, at), 7);
    close(fd);
    wb_log_chunks_forget();
}

static bool never(void *data)
{
    return false;
}

static uint64_t room(void)
{
    uint64_t size = 0;

    ck_assert_int_eq(wb_room_measure(tree.store, never, NULL, &size), 0);
    return size;
}

START_TEST(test_a_bundle_takes_space_once)
{
    g_autofree struct wb_room_ages *ages = g_new0(struct wb_room_ages, 1);
    struct stat st;
    uint64_t with;

    compact(0, "f1");
    ck_assert_int_eq(wb_bundle_stat(tree.store, objects[0][1], WB_FILE_BUNDLE, &st), 0);
    with = room();
    ages->now = now();
    ck_assert_int_eq(wb_room_gather(tree.store, true, never, NULL, ages), 0);
    ck_assert_uint_ge(wb_room_between(ages, 0, ages->now), (uint64_t)st.st_blocks * 512 / 2);
    for (unsigned i = 0; i < RELEASES; i++)
        ck_assert_int_eq(wb_bundle_drop(tree.store, objects[i][1]), 0);
    ck_assert_uint_eq(with - room(), (uint64_t)st.st_blocks * 512);
}
END_TEST

static ino_t bundle_of(struct wb_object object)
{
    struct stat st;

    ck_assert_int_eq(wb_bundle_stat(tree.store, object, WB_FILE_BUNDLE, &st), 0);
    return st.st_ino;
}

/* As vprune does it: the file, its name of the bundle, and then the bundle. */
static int prune_one(struct wb_object object, struct wb_object neighbour)
{
    g_autoptr(GHashTable) objects_left = wb_bundle_objects_new();
    char path[WB_OBJECT_PATH_MAX];

    wb_object_path(object, WB_FILE_DATA, path);
    if (unlinkat(tree.store->grave_fd, path, 0) < 0)
        ck_assert_int_eq(errno, ENOENT);
    ck_assert_int_eq(wb_bundle_drop(tree.store, object), 0);
    g_hash_table_add(objects_left, g_memdup2(&neighbour, sizeof(neighbour)));
    return wb_bundle_refresh(tree.store, objects_left, never, NULL);
}

START_TEST(test_waiters_go_before_rewritten_bundles_and_none_is_written_twice)
{
    ino_t first;

    compact(0, NULL);
    first = bundle_of(objects[0][2]);
    atomic_store(&tree.store->rewrite_wanted, 1);
    ck_assert_int_eq(prune_one(objects[0][1], objects[0][2]), -ECANCELED);
    ck_assert_uint_eq(bundle_of(objects[0][2]), first);
    atomic_store(&tree.store->rewrite_wanted, 0);
    ck_assert_int_eq(prune_one(objects[0][1], objects[0][2]), 0);
    ck_assert_uint_ne(bundle_of(objects[0][2]), first);
    ck_assert(!is_somewhere(objects[0][1]));
    first = bundle_of(objects[0][2]);
    ck_assert_int_eq(prune_one(objects[0][1], objects[0][2]), 0);
    ck_assert_uint_eq(bundle_of(objects[0][2]), first);
}
END_TEST

START_TEST(test_of_a_damaged_bundle_nothing_more_is_lost_when_a_neighbour_is_removed)
{
    ino_t first;

    compact(0, NULL);
    first = bundle_of(objects[0][2]);
    damage(objects[0][2]);
    ck_assert_int_eq(prune_one(objects[0][1], objects[0][2]), -EIO);
    for (unsigned j = 2; j < NAMES; j++)
        ck_assert_uint_eq(bundle_of(objects[0][j]), first);
}
END_TEST

START_TEST(test_damage_is_refused)
{
    struct wb_revision *revision;
    unsigned refused = 0;
    ssize_t n;

    compact(0, NULL);
    damage(objects[0][2]);
    for (unsigned i = 0; i < RELEASES; i++) {
        for (unsigned j = 0; j < NAMES; j++) {
            g_autofree char *text = NULL;

            revision = find(name_of(j), moments[i], NULL);
            text = content_of(revision, &n);
            wb_revision_unref(revision);
            refused += n == -EIO;
            if (n >= 0)
                ck_assert_str_eq(text, texts[i][j]);
        }
    }
    ck_assert_uint_gt(refused, 0);
}
END_TEST

/* A failed write is reported once for each descriptor, and the store's is synced by many. */
START_TEST(test_nothing_is_emptied_whose_bundle_could_not_be_written)
{
    struct wb_compact some = {.before = WB_WHEN_PRESENT};
    int r;

    writing_fails = true;
    r = wb_compact_bodies(tree.store, &some, tree_object(&tree, "d"), NULL);
    writing_fails = false;
    ck_assert_int_eq(r, -EIO);
    ck_assert(!has(objects[0][1], WB_FILE_BUNDLE));
    for (unsigned j = 0; j < NAMES; j++)
        ck_assert_uint_eq(length_of(objects[0][j]), strlen(texts[0][j]));
    check_all();
}
END_TEST

static bool cut;

/* The graveyard may be on another device, on which this is durable before the name is. */
static void expect_durable_name(void)
{
    struct stat st;

    cut = true;
    ck_assert_int_eq(wb_bundle_stat(tree.store, objects[1][1], WB_FILE_BUNDLE, &st), 0);
    ck_assert_uint_eq(synced, st.st_ino);
    cutting = NULL;
}

static void restore_between(void)
{
    struct stat st;

    if (wb_bundle_stat(tree.store, objects[1][1], WB_FILE_BUNDLE, &st) != 0)
        return;
    syncing = NULL;
    synced = 0;
    cutting = expect_durable_name;
    ck_assert_int_eq(wb_capture_restore(tree.store, tree_dir(&tree, "d"), "f1", objects[1][1], false, -1, NULL, 0), 0);
    cutting = NULL;
}

START_TEST(test_a_file_restored_between_name_and_sync_is_not_cut_before_its_bundle_is_durable)
{
    syncing = restore_between;
    compact(0, NULL);
    syncing = NULL;
    ck_assert(cut);
    expect_content("d/f1", now(), texts[1][1]);
    check_all();
}
END_TEST

#define DIRS 30
#define TIMES 4
static unsigned most_open;

/* Those of bundles. Their number grows one by one: to look each time would find the same, and take most of the time. */
static void count_open(void *data)
{
    static unsigned turn;
    GDir *dir = turn++ % 8 == 0 ? g_dir_open("/proc/self/fd", 0, NULL) : NULL;
    const char *name;
    unsigned n = 0;

    if (!dir)
        return;
    while ((name = g_dir_read_name(dir))) {
        g_autofree char *path = g_build_filename("/proc/self/fd", name, NULL);
        g_autofree char *to = g_file_read_link(path, NULL);

        n += to && (strstr(to, ".bundle") || strstr(to, "/#"));
    }
    g_dir_close(dir);
    most_open = MAX(most_open, n);
    (void)data;
}

/* Files saved one at a time, each of which was idle before the next; then all at once. */
START_TEST(test_few_files_are_open_at_a_time)
{
    g_autofree char *text = g_strnfill(9000, 'x');
    char dir[16], name[32];

    for (unsigned d = 0; d < DIRS; d++) {
        g_snprintf(dir, sizeof(dir), "e%u", d);
        op_birth(&tree, dir, WB_OP_MKDIR);
        for (unsigned f = 0; f < TIMES; f++) {
            g_snprintf(name, sizeof(name), "e%u/f%u", d, f);
            op_make(&tree, name, text);
        }
    }
    for (unsigned f = 0; f <= TIMES; f++) {
        struct wb_compact some = {.before = WB_WHEN_PRESENT, .give_way = f == TIMES ? count_open : NULL};

        wb_compact_begin(&some, tree.store);
        for (unsigned d = 0; d < DIRS; d++) {
            for (unsigned g = f % TIMES; g <= (f == TIMES ? TIMES - 1 : f); g++) {
                g_snprintf(name, sizeof(name), "e%u/f%u", d, g);
                op_make(&tree, "new", text);
                op_rename(&tree, "new", name, 0);
            }
            g_snprintf(dir, sizeof(dir), "e%u", d);
            ck_assert_int_eq(wb_compact_bodies(tree.store, &some, tree_object(&tree, dir), NULL), 0);
        }
        ck_assert_int_eq(wb_compact_finish(&some, 0), 0);
        ck_assert_uint_eq(some.bodies.changed, DIRS * (f == TIMES ? TIMES : 1));
    }
    ck_assert_uint_lt(most_open, 120);
}
END_TEST

/* During the turn of the others, this directory was being changed, and so it had none. */
START_TEST(test_old_losses_of_a_directory_are_packed_once_it_is_idle)
{
    struct wb_compact idle = {.flags = WB_COMPACT_IDLE, .before = WB_WHEN_PRESENT};
    struct wb_object dir = tree_object(&tree, "d");
    int64_t turn;

    g_usleep(20000);
    turn = wb_when_now();
    g_usleep(20000);
    op_make(&tree, "new", "something else");
    op_rename(&tree, "new", "d/f1", 0);
    ck_assert_int_eq(
        wb_compact_shard(tree.store, &idle, (unsigned)(dir.ino & 0xff), turn, wb_when_now() + WB_WHEN_SECOND), 0);
    ck_assert(has(objects[0][1], WB_FILE_BUNDLE));
    ck_assert(has(objects[0][2], WB_FILE_BUNDLE));
}
END_TEST

static bool is_refused(const char *path, int64_t when)
{
    struct wb_revision *revision = find(path, when, NULL);
    g_autofree char *text = NULL;
    ssize_t n;

    text = content_of(revision, &n);
    wb_revision_unref(revision);
    return n == -EIO;
}

/* The power failed before the content of deleted files was on the disk: packing must not make the rest of it good. */
START_TEST(test_content_that_a_power_cut_may_have_taken_is_not_packed_before_a_gap_says_so)
{
    char path[WB_OBJECT_PATH_MAX];

    tree.store->lost_since = 1;
    tree.store->lost_until = wb_when_now() + WB_WHEN_SECOND;
    ck_assert_uint_eq(compact(0, NULL).bodies.changed, 0);
    for (unsigned j = 0; j < NAMES; j++) {
        int fd;

        ck_assert(!has(objects[0][j], WB_FILE_BUNDLE));
        ck_assert_uint_eq(length_of(objects[0][j]), strlen(texts[0][j]));
        ck_assert(is_refused(name_of(j), moments[0]));
        wb_object_path(objects[0][j], WB_FILE_DATA, path);
        fd = openat(tree.store->grave_fd, path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        ck_assert_int_eq(wb_capture_lost_content(tree.store, objects[0][j], fd), 0);
        close(fd);
    }
    /* Which the survey does. Those are packed then, and refused all the same. */
    ck_assert_uint_eq(compact(0, NULL).bodies.changed, NAMES);
    for (unsigned j = 0; j < NAMES; j++) {
        ck_assert(has(objects[0][j], WB_FILE_BUNDLE));
        ck_assert(is_refused(name_of(j), moments[0]));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bundle");
    TCase *cases = tcase_create("bundle");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(cases, setup_releases, teardown_releases);
    tcase_add_test(cases, test_releases_are_little_more_than_one);
    tcase_add_test(cases, test_an_open_file_is_readable_while_it_is_packed_and_unpacked);
    tcase_add_test(cases, test_a_restored_file_is_whole_and_its_bundle_is_remembered);
    tcase_add_test(cases, test_a_file_being_restored_is_not_emptied);
    tcase_add_test(cases, test_an_erased_file_is_in_no_bundle_and_its_neighbours_are_whole);
    tcase_add_loop_test(cases, test_a_file_restored_meanwhile_is_whole_and_nothing_is_packed_with_it, 0, 4);
    tcase_add_loop_test(cases, test_a_file_erased_meanwhile_is_in_no_bundle, 0, 3);
    tcase_add_test(cases, test_in_the_background_it_locks_nothing_while_others_wait_and_packs_as_configured);
    tcase_add_test(cases, test_a_file_that_did_not_get_smaller_is_not_tried_again_in_the_background);
    tcase_add_test(cases, test_random_bytes_are_not_packed);
    tcase_add_test(cases, test_directories_are_synced_together_or_not_at_all);
    tcase_add_test(cases, test_a_file_deleted_in_two_directories_is_packed_once);
    tcase_add_test(cases, test_a_bundle_with_new_files_replaces_the_old_one);
    tcase_add_test(cases, test_a_name_of_a_bundle_without_its_file_is_no_obstacle);
    tcase_add_test(cases, test_a_bundle_takes_space_once);
    tcase_add_test(cases, test_waiters_go_before_rewritten_bundles_and_none_is_written_twice);
    tcase_add_test(cases, test_of_a_damaged_bundle_nothing_more_is_lost_when_a_neighbour_is_removed);
    tcase_add_test(cases, test_damage_is_refused);
    tcase_add_test(cases, test_nothing_is_emptied_whose_bundle_could_not_be_written);
    tcase_add_test(cases, test_a_file_restored_between_name_and_sync_is_not_cut_before_its_bundle_is_durable);
    tcase_add_test(cases, test_few_files_are_open_at_a_time);
    tcase_add_test(cases, test_old_losses_of_a_directory_are_packed_once_it_is_idle);
    tcase_add_test(cases, test_content_that_a_power_cut_may_have_taken_is_not_packed_before_a_gap_says_so);
    tcase_set_timeout(cases, 120);
    suite_add_tcase(suite, cases);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}

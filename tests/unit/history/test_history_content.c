/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Content of the past: changes under way, growth and cuts, damage, and reading while another writes. */
#include "history/content/extent_map.h"
#include "history_tree.h"
#include <pthread.h>

/* ---- changes that did not happen, or not yet ---------------------------------------------------- */

START_TEST(a_record_whose_change_is_under_way)
{
    struct wb_overwrite overwrite = {.op = WB_OP_WRITE, .offset = 1, .length = 2, .new_data = "EX", .size_after = 4};
    struct wb_change change;
    struct wb_target target;
    int64_t when;
    int fd;

    op_make(&tree, "f", "text");
    when = now();
    fd = tree_target(&tree, "f", O_RDWR, &target);
    ck_assert_int_eq(wb_capture_content(tree.store, &change, &target, fd, &overwrite, 0), 0);
    expect_content("f", when, "text");
    wb_capture_end(&change, -EIO);
    expect_content("f", when, "text");
    op_write(&tree, "f", 0, "TEXT");
    expect_content("f", when, "text");
    close(fd);
}
END_TEST

static void *finish_later(void *data)
{
    g_usleep(50 * 1000);
    ck_assert_int_eq(pwrite(*(int *)data, "EX", 2, 1), 2);
    return NULL;
}

START_TEST(a_moment_waits_for_changes_before_it)
{
    struct wb_overwrite overwrite = {.op = WB_OP_WRITE, .offset = 1, .length = 2, .new_data = "EX", .size_after = 4};
    struct wb_change change;
    struct wb_target target;
    pthread_t thread;
    int64_t start;
    int fd;

    op_make(&tree, "f", "text");
    fd = tree_target(&tree, "f", O_RDWR, &target);
    ck_assert_int_eq(wb_capture_content(tree.store, &change, &target, fd, &overwrite, 0), 0);
    pthread_create(&thread, NULL, finish_later, &fd);
    pthread_join(thread, NULL);
    wb_capture_end(&change, 0);
    expect_content("f", now(), "tEXt");
    /* And one that never ends delays the past for a short time only. */
    overwrite.new_data = "ex";
    ck_assert_int_eq(wb_capture_content(tree.store, &change, &target, fd, &overwrite, 0), 0);
    start = g_get_monotonic_time();
    expect_content("f", now(), "tEXt");
    ck_assert_int_ge(g_get_monotonic_time() - start, 500 * 1000);
    ck_assert_int_lt(g_get_monotonic_time() - start, 120 * 1000 * 1000);
    wb_capture_end(&change, -EIO);
    close(fd);
}
END_TEST

/* ---- content --------------------------------------------------------------------------------- */

START_TEST(growth_cut_and_growth_again)
{
    int64_t t[5];

    op_make(&tree, "f", "0123456789");
    t[0] = now();
    op_write(&tree, "f", 10, "abcdef");
    t[1] = now();
    op_truncate(&tree, "f", 4);
    t[2] = now();
    op_truncate(&tree, "f", 8);
    t[3] = now();
    op_write(&tree, "f", 2, "XXXXXXXX");
    expect_content("f", t[0], "0123456789");
    expect_content("f", t[1], "0123456789abcdef");
    expect_content("f", t[2], "0123");
    expect_content("f", WB_WHEN_PRESENT, "01XXXXXXXX");
    {
        struct wb_revision *revision = find("f", t[3], NULL);
        g_autofree char *text = NULL;
        ssize_t n;

        text = content_of(revision, &n);
        ck_assert_int_eq(n, 8);
        ck_assert_mem_eq(text, "0123\0\0\0\0", 8);
        wb_revision_unref(revision);
    }
}
END_TEST

START_TEST(a_file_that_shrank_unrecorded_is_an_error)
{
    g_autofree char *path = g_build_filename(tree.path, "f", NULL), *text = NULL;
    struct wb_revision *revision;
    int64_t when;
    ssize_t n;

    op_make(&tree, "f", "0123456789");
    when = now();
    op_chmod(&tree, "f", 0600);
    ck_assert_int_eq(truncate(path, 5), 0);
    revision = find("f", when, NULL);
    text = content_of(revision, &n);
    ck_assert_int_eq(n, -EIO);
    ck_assert_ptr_nonnull(strstr(wb_history_error(), "shorter"));
    wb_revision_unref(revision);
}
END_TEST

/* ---- damage ---------------------------------------------------------------------------------- */

static void flip(struct wb_object object, enum wb_object_file file, uint64_t offset)
{
    int fd = wb_store_open_file(tree.store, object, file, O_RDWR);
    uint8_t byte;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pread(fd, &byte, 1, (off_t)offset), 1);
    byte ^= 0x40;
    ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)offset), 1);
    close(fd);
}

/* The n-th newest record of a type in a log. */
static struct wb_record record_of(struct wb_object object, enum wb_object_file file, unsigned type, int n)
{
    int fd = wb_store_open_file(tree.store, object, file, O_RDONLY);
    struct wb_log_reader reader;
    struct wb_record record;

    ck_assert_int_eq(wb_log_reader_init(&reader, fd), 0);
    do {
        ck_assert_int_eq(wb_log_reader_prev(&reader, &record), 0);
    } while (record.type != type || --n > 0);
    wb_log_reader_deinit(&reader);
    close(fd);
    return record;
}

static void expect_error(const char *path, int64_t when, const char *problem)
{
    int r = 0;
    ssize_t n = 0;
    struct wb_revision *revision = find(path, when, &r);
    g_autofree char *text = revision ? content_of(revision, &n) : NULL;

    ck_assert_msg(r == -EIO || n == -EIO, "%s: %d %zd", path, r, n);
    ck_assert_msg(strstr(wb_history_error(), problem) != NULL, "%s", wb_history_error());
    wb_revision_unref(revision);
}

START_TEST(a_damaged_payload_costs_its_bytes)
{
    struct wb_object object;
    struct wb_file_view *view;
    struct wb_revision *revision;
    int64_t t1, t2, t3;
    char data[4];

    op_make(&tree, "f", "0123456789");
    object = tree_object(&tree, "f");
    t1 = now();
    op_write(&tree, "f", 0, "ab");
    t2 = now();
    op_write(&tree, "f", 6, "cd");
    t3 = now();
    op_write(&tree, "f", 2, "ef");
    flip(object, WB_FILE_UNDO, record_of(object, WB_FILE_UNDO, WB_REC_DATA, 2).payload_offset);
    expect_error("f", t1, "damaged");
    expect_error("f", t2, "damaged");
    expect_content("f", t3, "ab2345cd89");
    revision = find("f", t1, NULL);
    ck_assert_int_eq(wb_file_view_open(history, revision, &view), 0);
    ck_assert_int_eq(wb_file_view_pread(view, data, 4, 0), 4);
    ck_assert_mem_eq(data, "0123", 4);
    ck_assert_int_eq(wb_file_view_pread(view, data, 4, 4), -EIO);
    ck_assert_int_eq(wb_file_view_pread(view, data, 2, 8), 2);
    wb_file_view_free(view);
    wb_revision_unref(revision);
}
END_TEST

START_TEST(a_damaged_head_costs_older_states)
{
    struct wb_object object;
    int64_t t[4];

    op_make(&tree, "f", "0123456789");
    object = tree_object(&tree, "f");
    t[0] = now();
    op_write(&tree, "f", 0, "ab");
    t[1] = now();
    op_write(&tree, "f", 6, "cd");
    t[2] = now();
    op_write(&tree, "f", 2, "ef");
    t[3] = now();
    op_write(&tree, "f", 4, "gh");
    flip(object, WB_FILE_UNDO, record_of(object, WB_FILE_UNDO, WB_REC_DATA, 3).offset + 20);
    expect_error("f", t[0], ".undo");
    expect_error("f", t[1], ".undo");
    expect_error("f", t[2], ".undo"); /* the time of the damaged one is unknown: perhaps after that */
    expect_content("f", t[3], "abef45cd89");
}
END_TEST

START_TEST(a_damaged_catalog)
{
    struct wb_object object;
    struct wb_past_dir *past;
    struct wb_revision *dir;
    int64_t t1, t2;

    mkdirs("d", NULL);
    op_make(&tree, "d/f", "text");
    object = tree_object(&tree, "d");
    t1 = now();
    op_rename(&tree, "d/f", "d/g", 0);
    op_rename(&tree, "d/g", "d/h", 0);
    t2 = now();
    op_remove(&tree, "d/h", false);
    flip(object, WB_FILE_CATALOG, record_of(object, WB_FILE_CATALOG, WB_REC_NAME, 3).offset + 20);
    expect_error("d/f", t1, ".cat");
    expect_content("d/h", t2, "text");
    dir = find("d", t1, NULL);
    ck_assert_int_eq(wb_past_dir_open(history, dir, &past), -EIO);
    wb_revision_unref(dir);
}
END_TEST

/* ---- reading while another writes ------------------------------------------------------------ */

#define RACE_SIZE (4 * 1024 * 1024)

static atomic_bool race_over;

static void *overwrite(void *data)
{
    struct wb_target *target = data;
    int fd = openat(tree.fd, "f", O_RDWR | O_CLOEXEC);
    unsigned seed = 7;
    char bytes[5000];

    for (int i = 0; i < 4000; i++) {
        struct wb_overwrite overwrite = {.op = WB_OP_WRITE, .new_data = bytes, .size_after = RACE_SIZE};
        struct wb_change change;

        memset(bytes, 'A' + rand_r(&seed) % 26, sizeof(bytes));
        overwrite.length = 1 + rand_r(&seed) % sizeof(bytes);
        overwrite.offset = rand_r(&seed) % (RACE_SIZE - overwrite.length);
        if (i > 3900 && i % 10 == 9) { /* late: the part that was cut off is read from the log for ever */
            overwrite = (struct wb_overwrite){
                .op = WB_OP_TRUNCATE, .offset = 1000, .length = UINT64_MAX - 1000, .size_after = 1000};
            ck_assert_int_ge(wb_capture_content(tree.store, &change, target, fd, &overwrite, 0), 0);
            ck_assert_int_eq(ftruncate(fd, 1000), 0);
            wb_capture_end(&change, 0);
            overwrite = (struct wb_overwrite){
                .op = WB_OP_TRUNCATE, .offset = RACE_SIZE, .length = UINT64_MAX - RACE_SIZE, .size_after = RACE_SIZE};
            ck_assert_int_ge(wb_capture_content(tree.store, &change, target, fd, &overwrite, 0), 0);
            ck_assert_int_eq(ftruncate(fd, RACE_SIZE), 0);
            wb_capture_end(&change, 0);
            continue;
        }
        ck_assert_int_ge(wb_capture_content(tree.store, &change, target, fd, &overwrite, 0), 0);
        ck_assert_int_eq(pwrite(fd, bytes, overwrite.length, (off_t)overwrite.offset), (ssize_t)overwrite.length);
        wb_capture_end(&change, 0);
    }
    close(fd);
    race_over = true;
    return NULL;
}

START_TEST(a_view_is_exact_while_the_file_is_overwritten)
{
    g_autofree char *wanted = g_malloc(RACE_SIZE + 1), *found = g_malloc(RACE_SIZE);
    struct wb_file_view *first, *view;
    struct wb_target target;
    struct wb_revision *revision;
    pthread_t thread;
    unsigned rounds = 0;
    int64_t when;
    int fd;

    for (int i = 0; i < RACE_SIZE; i++)
        wanted[i] = (char)('a' + i / 7 % 26);
    wanted[RACE_SIZE] = '\0';
    op_make(&tree, "f", wanted);
    when = now();
    fd = tree_target(&tree, "f", O_RDWR, &target);
    revision = find("f", when, NULL);
    ck_assert_int_eq(wb_file_view_open(history, revision, &first), 0);
    race_over = false;
    pthread_create(&thread, NULL, overwrite, &target);
    while (!race_over || rounds < 2) {
        struct wb_revision *again = find("f", when, NULL);

        ck_assert_int_eq(wb_file_view_open(history, again, &view), 0);
        ck_assert_msg(wb_file_view_pread(view, found, RACE_SIZE, 0) == RACE_SIZE, "%s", wb_history_error());
        ck_assert_mem_eq(found, wanted, RACE_SIZE);
        wb_file_view_free(view);
        ck_assert_msg(wb_file_view_pread(first, found, RACE_SIZE, 0) == RACE_SIZE, "%s", wb_history_error());
        ck_assert_mem_eq(found, wanted, RACE_SIZE);
        wb_revision_unref(again);
        rounds++;
    }
    pthread_join(thread, NULL);
    wb_file_view_free(first);
    wb_revision_unref(revision);
    close(fd);
}
END_TEST

/* ---- the map of extents ------------------------------------------------------------------------ */

#define MAP_SIZE 300

static uint64_t truth[MAP_SIZE];

static void expect_map(const struct wb_extent_map *map)
{
    uint64_t until;

    for (uint64_t at = 0; at < MAP_SIZE; at++) {
        const struct wb_piece *found = wb_extent_map_find(map, at, &until);

        /* An assertion is a system call in itself, and this is checked some million times. */
        if (found ? (found->blob << 32 | (found->within + at - found->offset)) != truth[at]
                  : truth[at] != 0 || until <= at || (until != UINT64_MAX && truth[until] == 0))
            ck_abort_msg("byte %d: %s", (int)at, found ? "another piece" : truth[at] ? "nothing" : "until where");
    }
}

START_TEST(extent_maps_do_as_arrays_do)
{
    GRand *rand = g_rand_new_with_seed((guint32)_i);
    struct wb_extent_map map;
    bool over = true;

    memset(truth, 0, sizeof(truth));
    wb_extent_map_init(&map);
    for (uint32_t n = 1; n <= 4000; n++) {
        uint64_t offset = (uint64_t)g_rand_int_range(rand, 0, MAP_SIZE);
        uint64_t length = (uint64_t)g_rand_int_range(rand, 0, 1 + g_rand_int_range(rand, 1, 40));
        struct wb_piece piece = {.offset = offset, .length = MIN(length, MAP_SIZE - offset), .blob = n,
                                 .within = 1000, .number = n};

        ck_assert_int_eq((over ? wb_extent_map_gather : wb_extent_map_fill)(&map, &piece), 0);
        for (uint64_t at = offset; at < offset + piece.length; at++)
            if (over || !truth[at])
                truth[at] = (uint64_t)n << 32 | (1000 + at - offset);
        if (g_rand_int_range(rand, 0, 20) == 0) {
            /* From one way of adding to the other, and from nothing at all again. */
            ck_assert_int_eq(wb_extent_map_settle(&map), 0);
            over = g_rand_boolean(rand);
            expect_map(&map);
            if (g_rand_int_range(rand, 0, 5) == 0) {
                wb_extent_map_deinit(&map);
                memset(truth, 0, sizeof(truth));
            }
        } else if (!over) {
            expect_map(&map);
        }
    }
    wb_extent_map_deinit(&map);
    g_rand_free(rand);
}
END_TEST

/* More than are gathered at once, and more than are kept beside the rest. */
START_TEST(large_extent_maps_do_as_arrays_do)
{
    enum { BLOCKS = 30000, SPREAD = 3 };
    GRand *rand = g_rand_new_with_seed(7);
    g_autofree uint32_t *blocks = g_new0(uint32_t, BLOCKS + SPREAD);
    struct wb_extent_map map;
    uint64_t until;

    wb_extent_map_init(&map);
    for (uint32_t n = 1; n <= 120000; n++) {
        bool over = n <= 100000;
        /* Gathered: not the first third, so that there is space for newer ones. */
        uint64_t block = (uint64_t)g_rand_int_range(rand, over ? BLOCKS / 3 : 0, BLOCKS);
        uint64_t count = (uint64_t)g_rand_int_range(rand, 1, SPREAD + 1);
        struct wb_piece piece = {.offset = block * 4096, .length = count * 4096, .blob = n, .number = n};

        if ((over ? wb_extent_map_gather : wb_extent_map_fill)(&map, &piece) != 0)
            ck_abort_msg("piece %u", n);
        for (uint64_t i = block; i < block + count; i++)
            if (over || !blocks[i])
                blocks[i] = n;
        if (over && n % 50000 == 0)
            ck_assert_int_eq(wb_extent_map_settle(&map), 0);
    }
    for (uint64_t i = 0; i < BLOCKS + SPREAD; i++) {
        const struct wb_piece *found = wb_extent_map_find(&map, i * 4096 + 5, &until);

        if ((found ? found->blob : 0) != blocks[i])
            ck_abort_msg("block %d: not %u", (int)i, blocks[i]);
    }
    wb_extent_map_deinit(&map);
    g_rand_free(rand);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("history_content");
    TCase *tcase = tcase_create("history_content");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_record_whose_change_is_under_way);
    tcase_add_test(tcase, a_moment_waits_for_changes_before_it);
    tcase_add_test(tcase, growth_cut_and_growth_again);
    tcase_add_test(tcase, a_file_that_shrank_unrecorded_is_an_error);
    tcase_add_test(tcase, a_damaged_payload_costs_its_bytes);
    tcase_add_test(tcase, a_damaged_head_costs_older_states);
    tcase_add_test(tcase, a_damaged_catalog);
    tcase_add_test(tcase, a_view_is_exact_while_the_file_is_overwritten);
    tcase_add_loop_test(tcase, extent_maps_do_as_arrays_do, 0, 10);
    tcase_add_test(tcase, large_extent_maps_do_as_arrays_do);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

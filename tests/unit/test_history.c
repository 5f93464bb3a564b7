/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The past, case by case: where objects are, damage, changes under way, and reading while others write. */
#include "capture_ops.h"
#include "history/extent_map.h"
#include "history/history.h"
#include "store/locate.h"
#include <pthread.h>

static struct tree tree;
static struct wb_history *history;

static void setup(void)
{
    tree_open(&tree);
    ck_assert_int_eq(wb_history_open(&history, tree.store), 0);
}

static void teardown(void)
{
    wb_history_free(history);
    tree_close(&tree);
}

static int64_t now(void)
{
    return wb_store_tick(tree.store);
}

/* What `path` was at `when`; NULL where it did not exist. */
static struct wb_spot *find(const char *path, int64_t when, int *ret_error)
{
    g_auto(GStrv) parts = g_strsplit(path, "/", -1);
    struct wb_spot *spot, *child;
    int r = 0;

    ck_assert_int_eq(wb_spot_root(history, when, &spot), 0);
    for (char **part = parts; *part && **part && r == 0; part++) {
        r = wb_spot_child(history, spot, *part, &child);
        wb_spot_unref(spot);
        spot = r == 0 ? child : NULL;
    }
    if (ret_error)
        *ret_error = r;
    else
        ck_assert_msg(r == 0 || r == WB_ABSENT, "%s: %d %s", path, r, wb_history_problem());
    return spot;
}

static char *content_of(struct wb_spot *spot, ssize_t *ret)
{
    struct wb_file_view *view;
    int r = wb_file_view_open(history, spot, &view);
    char *text;

    *ret = r;
    if (r < 0)
        return NULL;
    text = g_malloc0(wb_file_view_size(view) + 1);
    *ret = wb_file_view_pread(view, text, wb_file_view_size(view), 0);
    wb_file_view_free(view);
    return text;
}

static void expect_content(const char *path, int64_t when, const char *wanted)
{
    struct wb_spot *spot = find(path, when, NULL);
    g_autofree char *text = NULL;
    ssize_t n = 0;

    if (!wanted) {
        ck_assert_msg(!spot, "%s was there", path);
        return;
    }
    ck_assert_msg(spot != NULL, "%s was not there", path);
    text = content_of(spot, &n);
    ck_assert_msg(n == (ssize_t)strlen(wanted), "%s: %zd %s", path, n, wb_history_problem());
    ck_assert_str_eq(text, wanted);
    wb_spot_unref(spot);
}

static void expect_place(const char *path, int64_t when, enum wb_whereabouts state, const char *wanted)
{
    struct wb_spot *spot = find(path, when, NULL);
    struct wb_location location;

    ck_assert_ptr_nonnull(spot);
    ck_assert_int_eq(wb_spot_locate(history, spot, &location), 0);
    ck_assert_int_eq(location.state, state);
    if (wanted)
        ck_assert_str_eq(location.path, wanted);
    else
        ck_assert_ptr_null(location.path);
    g_free(location.path);
    wb_spot_unref(spot);
}

static void mkdirs(const char *first, ...)
{
    va_list list;

    va_start(list, first);
    for (const char *path = first; path; path = va_arg(list, const char *))
        op_birth(&tree, path, WB_OP_MKDIR);
    va_end(list);
}

/* ---- where things are ------------------------------------------------------------------------ */

START_TEST(files_are_followed_through_renames)
{
    int64_t when;

    mkdirs("a", "b", "b/c", NULL);
    op_make(&tree, "a/x", "text");
    when = now();
    op_rename(&tree, "a/x", "a/y", 0);
    op_rename(&tree, "a/y", "b/y", 0);
    op_rename(&tree, "b/y", "b/c/z", 0);
    op_rename(&tree, "b", "d", 0);
    expect_place("a/x", when, WB_ALIVE, "d/c/z");
    op_make(&tree, "a/x", "other");
    op_rename(&tree, "d/c/z", "a/x", RENAME_EXCHANGE);
    expect_place("a/x", when, WB_ALIVE, "a/x");
    op_write(&tree, "a/x", 0, "TEXT");
    expect_content("a/x", when, "text");
    expect_content("b/c/z", when, NULL);
    op_remove(&tree, "a/x", false);
    expect_place("a/x", when, WB_BURIED, NULL);
    expect_content("a/x", when, "text");
}
END_TEST

START_TEST(a_long_chain_of_names)
{
    int64_t when;

    mkdirs("a", "b", NULL);
    op_make(&tree, "a/0", "text");
    when = now();
    for (int i = 0; i < 100; i++) {
        g_autofree char *from = g_strdup_printf("%c/%d", "ab"[i % 2], i);
        g_autofree char *to = g_strdup_printf("%c/%d", "ba"[i % 2], i + 1);

        op_rename(&tree, from, to, 0);
        tree_release(&tree);
    }
    expect_place("a/0", when, WB_ALIVE, "a/100");
    expect_content("a/0", when, "text");
}
END_TEST

START_TEST(directories_that_moved_and_died)
{
    int64_t before, moved;

    mkdirs("a", "a/b", "a/b/c", "z", NULL);
    op_make(&tree, "a/b/c/f", "text");
    before = now();
    op_rename(&tree, "a/b", "z/b", 0);
    moved = now();
    expect_place("a/b/c", before, WB_ALIVE, "z/b/c");
    expect_content("a/b/c/f", before, "text");
    expect_content("a/b/c/f", moved, NULL);
    expect_content("z/b/c/f", moved, "text");
    expect_content("z/b/c/f", before, NULL);
    op_remove(&tree, "z/b/c/f", false);
    op_remove(&tree, "z/b/c", true);
    op_remove(&tree, "z/b", true);
    op_remove(&tree, "a", true);
    expect_place("a/b/c", before, WB_BURIED, NULL);
    expect_content("a/b/c/f", before, "text");
    expect_content("z/b/c/f", moved, "text");
}
END_TEST

START_TEST(shifts_follow_the_object)
{
    struct wb_spot *spot, *then, *none = NULL;
    int64_t born, moved;

    mkdirs("a", "z", NULL);
    born = now();
    mkdirs("a/b", NULL);
    op_make(&tree, "a/b/f", "text");
    moved = now();
    op_rename(&tree, "a/b", "z/c", 0);
    spot = find("z/c", WB_WHEN_PRESENT, NULL);
    ck_assert_int_eq(wb_spot_shift(history, spot, moved, &then), 0);
    ck_assert_str_eq(wb_spot_name(then), "b");
    ck_assert_str_eq(wb_spot_name(wb_spot_parent(then)), "a");
    ck_assert_int_eq(wb_spot_shift(history, spot, born, &none), WB_ABSENT);
    wb_spot_unref(then);
    wb_spot_unref(spot);
    spot = find("z/c/f", WB_WHEN_PRESENT, NULL);
    ck_assert_int_eq(wb_spot_shift(history, spot, moved, &then), 0);
    ck_assert_str_eq(wb_spot_name(wb_spot_parent(then)), "b");
    wb_spot_unref(then);
    wb_spot_unref(spot);
}
END_TEST

START_TEST(restored_files_are_found)
{
    struct wb_object object;
    const char *name;
    int64_t when;

    mkdirs("a", "b", NULL);
    op_make(&tree, "a/x", "text");
    object = tree_object(&tree, "a/x");
    when = now();
    op_remove(&tree, "a/x", false);
    ck_assert_int_eq(wb_capture_restore(tree.store, tree_parent(&tree, "b/y", &name), "y", object, false, -1,
                                        NULL, 0), 0);
    expect_place("a/x", when, WB_ALIVE, "b/y");
    op_rename(&tree, "b/y", "b/z", 0);
    expect_place("a/x", when, WB_ALIVE, "b/z");
    op_write(&tree, "b/z", 1, "EX");
    expect_content("a/x", when, "text");
}
END_TEST

START_TEST(hard_links)
{
    struct wb_spot *spot;
    struct wb_attrs attrs;
    int64_t one, two;

    op_make(&tree, "a", "text");
    one = now();
    op_link(&tree, "a", "b");
    two = now();
    op_write(&tree, "b", 0, "TEXT");
    op_remove(&tree, "a", false);
    expect_content("a", one, "text");
    expect_content("b", two, "text");
    expect_content("b", one, NULL);
    spot = find("a", one, NULL);
    ck_assert_int_eq(wb_spot_attrs(history, spot, &attrs), 0);
    ck_assert_uint_eq(attrs.nlink, 1);
    wb_spot_unref(spot);
    spot = find("b", two, NULL);
    ck_assert_int_eq(wb_spot_attrs(history, spot, &attrs), 0);
    ck_assert_uint_eq(attrs.nlink, 2);
    wb_spot_unref(spot);
    spot = find("b", WB_WHEN_PRESENT, NULL);
    ck_assert_int_eq(wb_spot_attrs(history, spot, &attrs), 0);
    ck_assert_uint_eq(attrs.nlink, 1);
    wb_spot_unref(spot);
}
END_TEST

START_TEST(paths_longer_than_one_string_may_be)
{
    g_autofree char *name = g_strnfill(200, 'n');
    struct wb_spot *spot, *child;
    struct wb_dir *dir = tree_dir(&tree, "");
    struct wb_change change;
    int64_t when;

    for (int i = 0; i < 30; i++) {
        struct wb_dir *next = g_new0(struct wb_dir, 1);

        ck_assert_int_eq(wb_capture_birth(tree.store, &change, dir, name, WB_OP_MKDIR, 0), 0);
        ck_assert_int_eq(mkdirat(dir->fd, name, 0755), 0);
        wb_capture_end(&change, 0);
        *next = (struct wb_dir){.parent = dir, .name = name,
                                .fd = openat(dir->fd, name, O_PATH | O_DIRECTORY | O_CLOEXEC)};
        ck_assert_int_eq(wb_object_stat(NULL, next->fd, NULL, &next->object, NULL, NULL), 0);
        g_ptr_array_add(tree.dirs, next);
        dir = next;
    }
    when = now();
    ck_assert_int_eq(wb_spot_root(history, when, &spot), 0);
    for (int i = 0; i < 30; i++) {
        ck_assert_msg(wb_spot_child(history, spot, name, &child) == 0, "level %d %s", i, wb_history_problem());
        wb_spot_unref(spot);
        spot = child;
    }
    ck_assert(wb_object_equal(wb_spot_object(spot), dir->object));
    wb_spot_unref(spot);
}
END_TEST

/* ---- changes that did not happen, or not yet ---------------------------------------------------- */

START_TEST(a_record_whose_change_is_under_way)
{
    struct wb_loss loss = {.op = WB_OP_WRITE, .offset = 1, .length = 2, .new_data = "EX", .size_after = 4};
    struct wb_change change;
    struct wb_target target;
    int64_t when;
    int fd;

    op_make(&tree, "f", "text");
    when = now();
    fd = tree_target(&tree, "f", O_RDWR, &target);
    ck_assert_int_eq(wb_capture_content(tree.store, &change, &target, fd, &loss, 0), 0);
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
    struct wb_loss loss = {.op = WB_OP_WRITE, .offset = 1, .length = 2, .new_data = "EX", .size_after = 4};
    struct wb_change change;
    struct wb_target target;
    pthread_t thread;
    int64_t start;
    int fd;

    op_make(&tree, "f", "text");
    fd = tree_target(&tree, "f", O_RDWR, &target);
    ck_assert_int_eq(wb_capture_content(tree.store, &change, &target, fd, &loss, 0), 0);
    pthread_create(&thread, NULL, finish_later, &fd);
    pthread_join(thread, NULL);
    wb_capture_end(&change, 0);
    expect_content("f", now(), "tEXt");
    /* And one that never ends does not stop the past for long. */
    loss.new_data = "ex";
    ck_assert_int_eq(wb_capture_content(tree.store, &change, &target, fd, &loss, 0), 0);
    start = g_get_monotonic_time();
    expect_content("f", now(), "tEXt");
    ck_assert_int_ge(g_get_monotonic_time() - start, 500 * 1000);
    ck_assert_int_lt(g_get_monotonic_time() - start, 5000 * 1000);
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
        struct wb_spot *spot = find("f", t[3], NULL);
        g_autofree char *text = NULL;
        ssize_t n;

        text = content_of(spot, &n);
        ck_assert_int_eq(n, 8);
        ck_assert_mem_eq(text, "0123\0\0\0\0", 8);
        wb_spot_unref(spot);
    }
}
END_TEST

START_TEST(a_file_that_shrank_unrecorded_is_an_error)
{
    g_autofree char *path = g_build_filename(tree.path, "f", NULL), *text = NULL;
    struct wb_spot *spot;
    int64_t when;
    ssize_t n;

    op_make(&tree, "f", "0123456789");
    when = now();
    op_chmod(&tree, "f", 0600);
    ck_assert_int_eq(truncate(path, 5), 0);
    spot = find("f", when, NULL);
    text = content_of(spot, &n);
    ck_assert_int_eq(n, -EIO);
    ck_assert_ptr_nonnull(strstr(wb_history_problem(), "shorter"));
    wb_spot_unref(spot);
}
END_TEST

START_TEST(what_was_born_later_unrecorded_is_not_seen)
{
    struct wb_past_dir *past;
    struct wb_spot *root;
    int64_t when;

    op_make(&tree, "f", "text");
    when = now();
    g_usleep(20000);
    close(openat(tree.fd, "foreign", O_CREAT | O_RDWR, 0644));
    expect_content("foreign", when, NULL);
    expect_content("foreign", now(), "");
    ck_assert_int_eq(wb_spot_root(history, when, &root), 0);
    ck_assert_int_eq(wb_past_dir_open(history, root, &past), 0);
    ck_assert_uint_eq(wb_past_dir_count(past), 1);
    ck_assert_str_eq(wb_past_dir_name(past, 0), "f");
    wb_past_dir_free(past);
    wb_spot_unref(root);
}
END_TEST

START_TEST(a_birth_dated_after_its_record)
{
    struct wb_change change;
    struct wb_past_dir *past;
    struct wb_spot *root;
    int64_t recorded, when;

    ck_assert_int_eq(wb_capture_birth(tree.store, &change, tree_dir(&tree, ""), "f", WB_OP_CREATE, 0), 0);
    recorded = change.when;
    when = now();
    g_usleep(30000);
    close(openat(tree.fd, "f", O_CREAT | O_RDWR, 0644));
    wb_capture_end(&change, 0);
    expect_content("f", when, "");
    expect_content("f", recorded, "");
    expect_content("f", recorded - 1, NULL);
    ck_assert_int_eq(wb_spot_root(history, when, &root), 0);
    ck_assert_int_eq(wb_past_dir_open(history, root, &past), 0);
    ck_assert_uint_eq(wb_past_dir_count(past), 1);
    wb_past_dir_free(past);
    wb_spot_unref(root);
}
END_TEST

START_TEST(the_store_is_never_seen)
{
    struct wb_spot *root, *child = NULL;
    struct wb_past_dir *past;

    ck_assert_int_eq(wb_spot_root(history, WB_WHEN_PRESENT, &root), 0);
    ck_assert_int_eq(wb_spot_child(history, root, WB_STORE_NAME, &child), WB_ABSENT);
    ck_assert_int_eq(wb_past_dir_open(history, root, &past), 0);
    ck_assert_uint_eq(wb_past_dir_count(past), 0);
    wb_past_dir_free(past);
    wb_spot_unref(root);
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
    struct wb_spot *spot = find(path, when, &r);
    g_autofree char *text = spot ? content_of(spot, &n) : NULL;

    ck_assert_msg(r == -EIO || n == -EIO, "%s: %d %zd", path, r, n);
    ck_assert_msg(strstr(wb_history_problem(), problem) != NULL, "%s", wb_history_problem());
    wb_spot_unref(spot);
}

START_TEST(a_damaged_payload_costs_its_bytes)
{
    struct wb_object object;
    struct wb_file_view *view;
    struct wb_spot *spot;
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
    spot = find("f", t1, NULL);
    ck_assert_int_eq(wb_file_view_open(history, spot, &view), 0);
    ck_assert_int_eq(wb_file_view_pread(view, data, 4, 0), 4);
    ck_assert_mem_eq(data, "0123", 4);
    ck_assert_int_eq(wb_file_view_pread(view, data, 4, 4), -EIO);
    ck_assert_int_eq(wb_file_view_pread(view, data, 2, 8), 2);
    wb_file_view_free(view);
    wb_spot_unref(spot);
}
END_TEST

START_TEST(a_damaged_head_costs_what_is_older)
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
    expect_error("f", t[2], ".undo"); /* when the damaged one was, nobody knows: perhaps after that */
    expect_content("f", t[3], "abef45cd89");
}
END_TEST

START_TEST(a_damaged_catalog)
{
    struct wb_object object;
    struct wb_past_dir *past;
    struct wb_spot *dir;
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
    wb_spot_unref(dir);
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
        struct wb_loss loss = {.op = WB_OP_WRITE, .new_data = bytes, .size_after = RACE_SIZE};
        struct wb_change change;

        memset(bytes, 'A' + rand_r(&seed) % 26, sizeof(bytes));
        loss.length = 1 + rand_r(&seed) % sizeof(bytes);
        loss.offset = rand_r(&seed) % (RACE_SIZE - loss.length);
        if (i > 3900 && i % 10 == 9) { /* late: what was cut off is read from the log for ever */
            loss = (struct wb_loss){.op = WB_OP_TRUNCATE, .offset = 1000, .length = UINT64_MAX - 1000,
                                    .size_after = 1000};
            ck_assert_int_ge(wb_capture_content(tree.store, &change, target, fd, &loss, 0), 0);
            ck_assert_int_eq(ftruncate(fd, 1000), 0);
            wb_capture_end(&change, 0);
            loss = (struct wb_loss){.op = WB_OP_TRUNCATE, .offset = RACE_SIZE,
                                    .length = UINT64_MAX - RACE_SIZE, .size_after = RACE_SIZE};
            ck_assert_int_ge(wb_capture_content(tree.store, &change, target, fd, &loss, 0), 0);
            ck_assert_int_eq(ftruncate(fd, RACE_SIZE), 0);
            wb_capture_end(&change, 0);
            continue;
        }
        ck_assert_int_ge(wb_capture_content(tree.store, &change, target, fd, &loss, 0), 0);
        ck_assert_int_eq(pwrite(fd, bytes, loss.length, (off_t)loss.offset), (ssize_t)loss.length);
        wb_capture_end(&change, 0);
    }
    close(fd);
    race_over = true;
    return NULL;
}

START_TEST(a_view_stays_exact_while_the_file_is_overwritten)
{
    g_autofree char *wanted = g_malloc(RACE_SIZE + 1), *found = g_malloc(RACE_SIZE);
    struct wb_file_view *first, *view;
    struct wb_target target;
    struct wb_spot *spot;
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
    spot = find("f", when, NULL);
    ck_assert_int_eq(wb_file_view_open(history, spot, &first), 0);
    race_over = false;
    pthread_create(&thread, NULL, overwrite, &target);
    while (!race_over || rounds < 2) {
        struct wb_spot *again = find("f", when, NULL);

        ck_assert_int_eq(wb_file_view_open(history, again, &view), 0);
        ck_assert_msg(wb_file_view_pread(view, found, RACE_SIZE, 0) == RACE_SIZE, "%s", wb_history_problem());
        ck_assert_mem_eq(found, wanted, RACE_SIZE);
        wb_file_view_free(view);
        ck_assert_msg(wb_file_view_pread(first, found, RACE_SIZE, 0) == RACE_SIZE, "%s", wb_history_problem());
        ck_assert_mem_eq(found, wanted, RACE_SIZE);
        wb_spot_unref(again);
        rounds++;
    }
    pthread_join(thread, NULL);
    wb_file_view_free(first);
    wb_spot_unref(spot);
    close(fd);
}
END_TEST

/* A file goes round in a ring of names in two directories, always present under the first one then. */
static void *move_around(void *data)
{
    static struct tree mine;

    mine = tree;
    mine.dirs = g_ptr_array_new_with_free_func(g_free);
    mine.strings = g_ptr_array_new_with_free_func(g_free);
    for (int i = 0; i < 400; i++) {
        op_rename(&mine, i % 2 ? "b/y" : "a/x", i % 2 ? "a/x" : "b/y", 0);
        op_rename(&mine, i % 2 ? "e/sub" : "a/sub", i % 2 ? "a/sub" : "e/sub", 0);
        op_make(&mine, "a/temporary", "");
        op_remove(&mine, "a/temporary", false);
        tree_release(&mine);
    }
    g_ptr_array_unref(mine.dirs);
    g_ptr_array_unref(mine.strings);
    race_over = true;
    return NULL;
}

START_TEST(names_stay_exact_while_they_change)
{
    struct wb_past_dir *past;
    pthread_t thread;
    unsigned rounds = 0;
    int64_t when;

    mkdirs("a", "b", "e", "a/sub", NULL);
    op_make(&tree, "a/x", "text");
    op_make(&tree, "a/sub/f", "below");
    when = now();
    race_over = false;
    pthread_create(&thread, NULL, move_around, NULL);
    while (!race_over || rounds < 2) {
        struct wb_spot *dir = find("a", when, NULL);

        expect_content("a/x", when, "text");
        expect_content("b/y", when, NULL);
        expect_content("a/sub/f", when, "below");
        ck_assert_int_eq(wb_past_dir_open(history, dir, &past), 0);
        ck_assert_uint_eq(wb_past_dir_count(past), 2);
        wb_past_dir_free(past);
        wb_spot_unref(dir);
        rounds++;
    }
    pthread_join(thread, NULL);
}
END_TEST

/* ---- the map of extents ------------------------------------------------------------------------ */

#define MAP_SIZE 300

START_TEST(extent_maps_do_as_arrays_do)
{
    GRand *rand = g_rand_new_with_seed((guint32)_i);
    uint64_t truth[MAP_SIZE] = {0}, until;
    struct wb_extent_map map;

    wb_extent_map_init(&map);
    for (int n = 1; n <= 400; n++) {
        uint64_t offset = (uint64_t)g_rand_int_range(rand, 0, MAP_SIZE);
        uint64_t length = (uint64_t)g_rand_int_range(rand, 1, 40);
        bool over = g_rand_boolean(rand);
        struct wb_piece piece = {.offset = offset, .length = MIN(length, MAP_SIZE - offset), .blob = (uint64_t)n,
                                 .within = 1000};

        (over ? wb_extent_map_set : wb_extent_map_fill)(&map, &piece);
        for (uint64_t at = offset; at < offset + piece.length; at++)
            if (over || !truth[at])
                truth[at] = (uint64_t)n << 32 | (1000 + at - offset);
        if (n % 100 == 0 && g_rand_int_range(rand, 0, 3) == 0) {
            wb_extent_map_deinit(&map);
            wb_extent_map_init(&map);
            memset(truth, 0, sizeof(truth));
        }
        for (uint64_t at = 0; at < MAP_SIZE; at++) {
            const struct wb_piece *found = wb_extent_map_find(&map, at, &until);

            ck_assert_int_eq(found != NULL, truth[at] != 0);
            if (found)
                ck_assert_uint_eq(found->blob << 32 | (found->within + at - found->offset), truth[at]);
            else
                ck_assert(until > at && (until == UINT64_MAX || truth[until] != 0));
        }
    }
    wb_extent_map_deinit(&map);
    g_rand_free(rand);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("history");
    TCase *tcase = tcase_create("history");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, files_are_followed_through_renames);
    tcase_add_test(tcase, a_long_chain_of_names);
    tcase_add_test(tcase, directories_that_moved_and_died);
    tcase_add_test(tcase, shifts_follow_the_object);
    tcase_add_test(tcase, restored_files_are_found);
    tcase_add_test(tcase, hard_links);
    tcase_add_test(tcase, paths_longer_than_one_string_may_be);
    tcase_add_test(tcase, a_record_whose_change_is_under_way);
    tcase_add_test(tcase, a_moment_waits_for_changes_before_it);
    tcase_add_test(tcase, growth_cut_and_growth_again);
    tcase_add_test(tcase, a_file_that_shrank_unrecorded_is_an_error);
    tcase_add_test(tcase, what_was_born_later_unrecorded_is_not_seen);
    tcase_add_test(tcase, a_birth_dated_after_its_record);
    tcase_add_test(tcase, the_store_is_never_seen);
    tcase_add_test(tcase, a_damaged_payload_costs_its_bytes);
    tcase_add_test(tcase, a_damaged_head_costs_what_is_older);
    tcase_add_test(tcase, a_damaged_catalog);
    tcase_add_test(tcase, a_view_stays_exact_while_the_file_is_overwritten);
    tcase_add_test(tcase, names_stay_exact_while_they_change);
    tcase_add_loop_test(tcase, extent_maps_do_as_arrays_do, 0, 10);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

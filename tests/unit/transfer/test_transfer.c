/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A copy, and a stream that differs from the one written: at every byte. */
#include "base/checksum.h"
#include "capture_ops.h"
#include "maintain/thin/thin_store.h"
#include "store/cache/gaps.h"
#include "transfer/wire/frames.h"
#include "wayback/copy.h"
#include <ftw.h>
#include <sys/mman.h>

static struct tree source;
static char copy[300];

static void setup(void)
{
    tree_open(&source);
    op_birth(&source, "dir", WB_OP_MKDIR);
    op_make(&source, "dir/file", "some text");
    op_make(&source, "gone", "and this");
    g_snprintf(copy, sizeof(copy), "%s-copy", source.path);
}

static void teardown(void)
{
    g_autofree char *command = g_strdup_printf("rm -rf '%s'", copy);

    tree_close(&source);
    ck_assert_int_eq(system(command), 0);
}

/* All changes since, as a stream. */
static GBytes *send_since(int64_t since)
{
    struct wb_copy_point from = {.since = since};
    int fd = memfd_create("stream", MFD_CLOEXEC);
    struct wb_copy_result result;
    struct wb_error why = {""};
    struct stat st;
    void *data;
    int r = wb_copy_send(source.path, NULL, &from, 0, fd, NULL, &result, &why);

    ck_assert_msg(r == 0, "%d: %s", r, why.text);
    ck_assert_int_eq(fstat(fd, &st), 0);
    data = g_malloc((size_t)st.st_size);
    ck_assert_int_eq(pread(fd, data, (size_t)st.st_size, 0), st.st_size);
    close(fd);
    return g_bytes_new_take(data, (size_t)st.st_size);
}

static int receive(const uint8_t *data, size_t length)
{
    int fd = memfd_create("stream", MFD_CLOEXEC), r;
    struct wb_copy_result result;
    struct wb_error why = {""};

    ck_assert_int_eq(write(fd, data, length), (ssize_t)length);
    ck_assert_int_eq(lseek(fd, 0, SEEK_SET), 0);
    r = wb_copy_receive(copy, fd, NULL, &result, &why);
    close(fd);
    return r;
}

static int64_t has(void)
{
    struct wb_copy_result result;
    struct wb_error why = {""};

    ck_assert_int_eq(wb_copy_status(copy, &result, &why), 0);
    return result.until;
}

static uint64_t sum;

/* Everything except the results of a stream. */
static int add_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    uint64_t parts[4] = {sum, wb_checksum(path, strlen(path)), st->st_mode, 0};
    g_autofree char *text = NULL;
    gsize length = 0;

    if (strstr(path, "/receiving"))
        return 0;
    if (type == FTW_F && g_file_get_contents(path, &text, &length, NULL))
        parts[3] = wb_checksum(text, length);
    sum = wb_checksum(parts, sizeof(parts));
    return 0;
}

static uint64_t sum_of_copy(void)
{
    sum = 0;
    nftw(copy, add_one, 16, FTW_PHYS);
    return sum;
}

/* Whether all frames up to END are taken. */
static bool is_whole(int fd)
{
    struct wb_stream_body body = {0};
    struct wb_frames frames;
    int r = 0;

    ck_assert_int_eq(lseek(fd, 0, SEEK_SET), 0);
    ck_assert_int_eq(wb_frames_init(&frames, fd, NULL), 0);
    while (r == 0 && body.type != WB_FRAME_END)
        r = wb_frames_read(&frames, &body, NULL, NULL);
    wb_frames_deinit(&frames);
    return r == 0;
}

START_TEST(frames_are_whole_or_refused)
{
    GBytes *stream = send_since(0);
    int fd = memfd_create("stream", MFD_CLOEXEC);
    gsize length;
    const uint8_t *data = g_bytes_get_data(stream, &length);

    ck_assert_int_eq(pwrite(fd, data, length, 0), (ssize_t)length);
    ck_assert(is_whole(fd));
    for (size_t at = 0; at < length; at++) {
        uint8_t altered = data[at] ^ (uint8_t)(1u << at % 8);

        ck_assert_int_eq(pwrite(fd, &altered, 1, (off_t)at), 1);
        ck_assert_msg(!is_whole(fd), "altered at %zu", at);
        ck_assert_int_eq(pwrite(fd, data + at, 1, (off_t)at), 1);
    }
    for (size_t at = length; at-- > 0;) {
        ck_assert_int_eq(ftruncate(fd, (off_t)at), 0);
        ck_assert_msg(!is_whole(fd), "cut at %zu", at);
    }
    close(fd);
    g_bytes_unref(stream);
}
END_TEST

static void cut_and_alter(GBytes *stream, int64_t before)
{
    gsize length;
    const uint8_t *data = g_bytes_get_data(stream, &length);
    g_autofree uint8_t *altered = g_memdup2(data, length);
    uint64_t was;

    ck_assert_int_eq(receive(data, 0), 1);
    /* Files made before anything is received. */
    ck_assert_int_eq(receive(data, length - 1), -EBADMSG);
    was = sum_of_copy();
    for (size_t at = 0; at < length; at += (size_t)amount(29, 293)) {
        if (at > 0)
            ck_assert_int_eq(receive(data, at), -EBADMSG);
        altered[at] ^= (uint8_t)(1u << at % 8);
        ck_assert_int_lt(receive(altered, length), 0);
        altered[at] = data[at];
        ck_assert_int_eq(has(), before);
        ck_assert_uint_eq(sum_of_copy(), was);
    }
    ck_assert_uint_eq(sum_of_copy(), was);
    ck_assert_int_eq(receive(data, length), 0);
    ck_assert_int_gt(has(), before);
}

START_TEST(a_cut_or_altered_stream_changes_nothing)
{
    GBytes *stream = send_since(0);
    int64_t until;

    cut_and_alter(stream, 0);
    g_bytes_unref(stream);
    until = has();
    op_write(&source, "dir/file", 5, "bytes");
    op_rename(&source, "dir/file", "moved", 0);
    op_remove(&source, "gone", false);
    stream = send_since(until);
    cut_and_alter(stream, until);
    g_bytes_unref(stream);
}
END_TEST

static GBytes *made_of(GBytes *stream, int64_t since, struct wb_object listed)
{
    gsize length;
    const uint8_t *data = g_bytes_get_data(stream, &length);
    int in = memfd_create("in", MFD_CLOEXEC), out = memfd_create("out", MFD_CLOEXEC);
    struct wb_stream_entry entry = {.object = {12345, 678}, .mode = S_IFREG, .length = 3, .name = "new"};
    struct wb_stream_list list = {.object = listed, .count = 1, .last = true};
    uint8_t head[WB_HELLO_SIZE], data_of_entry[WB_STREAM_ENTRY_MAX];
    struct wb_stream_body body;
    struct wb_frames frames;
    struct stat st;
    void *all;

    ck_assert_int_eq(pwrite(in, data, length, 0), (ssize_t)length);
    ck_assert_int_eq(wb_frames_init(&frames, in, NULL), 0);
    ck_assert_int_eq(wb_frames_read(&frames, &body, NULL, NULL), 0);
    wb_frames_deinit(&frames);
    body.hello.since = since;
    body.hello.until = since + 1;
    ck_assert_int_eq(wb_frames_init(&frames, out, NULL), 0);
    wb_stream_encode_hello(&body.hello, head);
    ck_assert_int_eq(wb_frames_write(&frames, WB_FRAME_HELLO, head, WB_HELLO_SIZE, NULL, 0), 0);
    if (wb_object_is_none(listed))
        list.object = body.hello.root;
    wb_stream_encode_list(&list, head);
    length = wb_stream_encode_entry(&entry, data_of_entry);
    ck_assert_int_eq(wb_frames_write(&frames, WB_FRAME_LISTING, head, WB_STREAM_LIST_SIZE, data_of_entry, length), 0);
    ck_assert_int_eq(wb_frames_write(&frames, WB_FRAME_END, NULL, 0, NULL, 0), 0);
    ck_assert_int_eq(wb_frames_flush(&frames), 0);
    wb_frames_deinit(&frames);
    ck_assert_int_eq(fstat(out, &st), 0);
    all = g_malloc((size_t)st.st_size);
    ck_assert_int_eq(pread(out, all, (size_t)st.st_size, 0), st.st_size);
    close(in);
    close(out);
    return g_bytes_new_take(all, (size_t)st.st_size);
}

/* Each frame is right, and the combination is impossible: of an object nobody has, or in a directory that is none. */
START_TEST(an_impossible_stream_changes_nothing)
{
    struct wb_object listed[] = {WB_OBJECT_NONE, {1, 2}};
    GBytes *stream = send_since(0), *wrong;
    int64_t until;
    uint64_t was;
    gsize length;
    const uint8_t *data = g_bytes_get_data(stream, &length);

    ck_assert_int_eq(receive(data, length), 0);
    until = has();
    was = sum_of_copy();
    for (unsigned i = 0; i < 2; i++) {
        wrong = made_of(stream, until, listed[i]);
        data = g_bytes_get_data(wrong, &length);
        ck_assert_int_eq(receive(data, length), -EBADMSG);
        ck_assert_int_eq(has(), until);
        ck_assert_uint_eq(sum_of_copy(), was);
        g_bytes_unref(wrong);
    }
    g_bytes_unref(stream);
    op_remove(&source, "gone", false);
    stream = send_since(until);
    data = g_bytes_get_data(stream, &length);
    ck_assert_int_eq(receive(data, length), 0);
    g_bytes_unref(stream);
}
END_TEST

START_TEST(points_are_words)
{
    struct wb_copy_point points[] = {
        {0}, {.since = 1234567890123456789}, {.until = 5, .frames = 1, .check = UINT64_MAX},
        {.since = 1234567890123456789, .until = 1234567890123456790, .frames = 77, .check = 1},
    }, found;
    static const char *const wrong[] = {"", "-1", "0+", "0+5", "0+5+1", "0+5+0+1", "0+5+1+x", "0+5+1+1+1", "7+6+1+1", "nonsense"};
    char text[WB_COPY_POINT_MAX];

    for (unsigned i = 0; i < G_N_ELEMENTS(points); i++) {
        ck_assert_int_eq(wb_copy_point_parse(wb_copy_point_print(&points[i], text), &found), 0);
        ck_assert_msg(memcmp(&found, &points[i], sizeof(found)) == 0, "%s", text);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(wrong); i++)
        ck_assert_msg(wb_copy_point_parse(wrong[i], &found) == -EINVAL, "%s", wrong[i]);
}
END_TEST

/* ---- versions are thinned out meanwhile ----------------------------------------------------------- */

static bool never(void *data)
{
    return false;
}

static void nothing(void *data)
{
}

/* All versions but the newest are removed, if nothing protects them. */
static void thin(void)
{
    struct wb_thin_options options = {.retention = {.most = 1}, .stop = never, .own = nothing, .release = nothing};
    struct wb_thin_count count = {0};
    struct wb_thinner *thinner;

    if (wb_thinner_begin(&thinner, source.store, &options, wb_store_now(source.store)) == -EBUSY)
        return;
    for (unsigned i = 0; i < WB_THIN_STEPS; i++)
        ck_assert_int_eq(wb_thinner_step(thinner, i, &count), 0);
    wb_thinner_free(thinner);
}

static void *send_beside(void *data)
{
    return send_since(*(int64_t *)data);
}

static void take(GBytes *stream)
{
    gsize length;
    const uint8_t *data = g_bytes_get_data(stream, &length);

    ck_assert_int_eq(receive(data, length), 0);
    g_bytes_unref(stream);
}

/* It has chosen its moment, and waits for a change before it that is under way. */
START_TEST(versions_thinned_before_the_moment_is_pinned_are_in_the_copy)
{
    struct wb_object root = source.store->header.root;
    g_autofree char *there = g_build_filename(copy, "file", NULL), *here = g_build_filename(source.path, "file", NULL);
    g_autofree char *text = NULL, *expected = NULL;
    int64_t since;
    pthread_t thread;
    void *stream;
    int slot;

    op_make(&source, "file", "0123456789012345678901234567890123456789");
    op_write(&source, "file", 0, "before");
    take(send_since(0));
    since = has();
    slot = wb_inflight_begin(source.store, wb_store_tick(source.store), root, WB_FILE_CATALOG, WB_OBJECT_NONE,
                             WB_FILE_UNDO, 1);
    ck_assert_int_ge(slot, 0);
    op_write(&source, "file", 0, "first change");
    ck_assert_int_eq(pthread_create(&thread, NULL, send_beside, &since), 0);
    g_usleep(500000);
    op_write(&source, "file", 20, "second change");
    thin();
    wb_inflight_end(source.store, slot);
    pthread_join(thread, &stream);
    take(stream);
    take(send_since(has()));
    ck_assert(g_file_get_contents(here, &expected, NULL, NULL) && g_file_get_contents(there, &text, NULL, NULL));
    ck_assert_str_eq(text, expected);
}
END_TEST

static void add_gap(struct wb_object object, unsigned reason, int64_t since)
{
    struct wb_record record = {.type = WB_REC_GAP, .gap = {since, (uint8_t)reason}};
    struct wb_log *log;

    ck_assert_int_eq(wb_store_get_log(source.store, object, WB_FILE_UNDO, true, &log), 0);
    pthread_mutex_lock(&log->lock);
    record.when = wb_store_tick(source.store);
    ck_assert_int_eq(wb_log_append_locked(log, &record, NULL, 0), 0);
    pthread_mutex_unlock(&log->lock);
    wb_store_put_log(source.store, log);
}

/* The reason of the newest record of that log of the copy, which has to be a GAP; *ret_since: its since. */
static unsigned newest_gap(struct wb_object object, int64_t *ret_since)
{
    char name[WB_OBJECT_PATH_MAX];
    g_autofree char *path = NULL;
    struct wb_log_reader reader;
    struct wb_record record;
    int fd;

    wb_object_path(object, WB_FILE_UNDO, name);
    path = g_build_filename(copy, WB_STORE_NAME, name, NULL);
    fd = open(path, O_RDONLY);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(wb_log_reader_init(&reader, fd), 0);
    ck_assert_int_eq(wb_log_reader_prev(&reader, &record), 0);
    wb_log_reader_deinit(&reader);
    close(fd);
    ck_assert_int_eq(record.type, WB_REC_GAP);
    *ret_since = record.gap.since;
    return record.gap.reason;
}

/* For all reasons, with a stream from the beginning and with one that continues; then one that no record has yet. */
START_TEST(gaps_travel)
{
    struct wb_object object = tree_object(&source, "dir/file");
    int64_t since, begin = wb_store_tick(source.store);

    for (unsigned reason = WB_GAP_REFUSED; reason <= WB_GAP_POLICY; reason++) {
        op_write(&source, "dir/file", 0, "x");
        add_gap(object, reason, begin);
        take(send_since(reason == WB_GAP_REFUSED ? 0 : has()));
        ck_assert_uint_eq(newest_gap(object, &since), reason);
        ck_assert_int_eq(since, begin);
    }
    ck_assert_int_eq(wb_gaps_open(source.store, true), 0);
    ck_assert_int_eq(wb_gap_begin(source.store, object, WB_FILE_UNDO), 0);
    take(send_since(has()));
    ck_assert_uint_eq(newest_gap(object, &since), WB_GAP_REFUSED);
    ck_assert_int_gt(since, begin);
    /* Once more, though nothing else has been recorded since. */
    take(send_since(has()));
    ck_assert_uint_eq(newest_gap(object, &since), WB_GAP_REFUSED);
    wb_gap_end(source.store, object, WB_FILE_UNDO);
    wb_gaps_flush(source.store);
    take(send_since(has()));
    ck_assert_uint_eq(newest_gap(object, &since), WB_GAP_REFUSED);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("transfer");
    TCase *tests = tcase_create("transfer");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, frames_are_whole_or_refused);
    tcase_add_test(tests, a_cut_or_altered_stream_changes_nothing);
    tcase_add_test(tests, an_impossible_stream_changes_nothing);
    tcase_add_test(tests, points_are_words);
    tcase_add_test(tests, gaps_travel);
    tcase_add_test(tests, versions_thinned_before_the_moment_is_pinned_are_in_the_copy);
    suite_add_tcase(suite, tests);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

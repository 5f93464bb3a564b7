/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Pruning in place: wherever it ends, and whichever part of it reached the disk, the log is sound, and the rest is
 * kept.
 */
#include "amount.h"
#include "base/checksum.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "maintain/prune/prune_parts.h"
#include "maintain/rewrite/log_edits.h"
#include "random_record.h"
#include "wayback/error.h"
#include "place.h"
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORDS 60
#define STAY 12
#define SECTOR 512

static char directory[PLACE_SIZE];
static int dir_fd;
static uint64_t begin, border; /* where fillers may be */

/* The kept part belongs to another log: its last record continues behind the part that is there. */
static void put_cut_record(const struct wb_log *log, const struct wb_record *record, uint8_t *payload, size_t length)
{
    struct wb_record other = {.type = record->type, .when = 5, .xattr = record->xattr, .payload_length = 200000};
    uint8_t data[WB_HEAD_SIZE + WB_BODY_MAX];
    size_t head = (size_t)wb_record_encode(&(struct wb_record){.type = record->type, .when = record->when,
                                                               .xattr = record->xattr}, data);
    size_t at = length - 240 - (log->tail + head + length) % 8;
    int n = wb_record_encode(&other, data);

    ck_assert_int_gt(n, 0);
    memcpy(payload + at, data, (size_t)n);
}

/* Long ones, for which one filler is too short, short ones, and some that are one change. */
static void append(struct wb_log *log, int64_t n)
{
    static uint8_t payload[WB_PAYLOAD_MAX];
    const size_t lengths[] = {WB_PAYLOAD_MAX, WB_PAYLOAD_MAX - 64, 300000, 4096, 100, 0};
    struct wb_record record = {
        .type = n % 7 == 3 ? WB_REC_FILLER : WB_REC_XATTR,
        .flags = n % 5 == 4 ? WB_RECORD_MORE : 0,
        .when = n - (n % 5 == 0),
        .xattr = {.object = {7, 7}, .present = 1, .name = "user.name", .name_length = 9},
    };
    struct iovec piece = {payload, lengths[random_below(G_N_ELEMENTS(lengths))]};

    if (record.type == WB_REC_FILLER) {
        record.filler.until = 0;
        memset(payload, 0, sizeof(payload));
        piece.iov_len = piece.iov_len == WB_PAYLOAD_MAX ? 200000 : 0;
    } else {
        for (size_t i = 0; i < piece.iov_len; i++)
            payload[i] = (uint8_t)random_u64();
        if (piece.iov_len > 1000)
            put_cut_record(log, &record, payload, piece.iov_len);
    }
    pthread_mutex_lock(&log->lock);
    ck_assert_int_eq(wb_log_append_locked(log, &record, &piece, piece.iov_len > 0), 0);
    pthread_mutex_unlock(&log->lock);
    if (n == 2)
        begin = log->tail;
    if (n == RECORDS - STAY)
        border = log->tail;
}

static int make_log(unsigned seed)
{
    struct wb_log *log = NULL;

    random_record_seed(seed);
    unlinkat(dir_fd, "log", 0);
    ck_assert_int_eq(wb_log_open(&log, dir_fd, "log", true), 0);
    for (int64_t n = 1; n <= RECORDS; n++)
        append(log, n);
    wb_log_free(log);
    return openat(dir_fd, "log", O_RDWR | O_CLOEXEC);
}

/* Contents besides fillers between `begin` and `border`: all of it by its checksum, or the records' places. */
static GArray *stays(int fd, bool backward)
{
    GArray *seen = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    g_autofree uint8_t *payload = g_malloc(WB_PAYLOAD_MAX);
    struct wb_log_reader reader;
    struct wb_record record;
    int r;

    ck_assert_int_eq(wb_log_reader_init(&reader, fd), 0);
    if (!backward)
        wb_log_reader_seek(&reader, 0);
    while ((r = backward ? wb_log_reader_prev(&reader, &record) : wb_log_reader_next(&reader, &record)) == 0) {
        uint64_t check;

        if (record.offset >= begin && record.offset < border)
            continue;
        ck_assert_int_eq(wb_log_bytes_payload(&reader.bytes, &record, payload), 0);
        check = wb_checksum(payload, record.payload_length) ^ record.offset ^ (uint64_t)record.when << 32;
        g_array_append_val(seen, check);
    }
    ck_assert_int_eq(r, WB_END);
    wb_log_reader_deinit(&reader);
    return seen;
}

static void check_log(int fd, const GArray *before)
{
    for (int backward = 0; backward < 2; backward++) {
        g_autoptr(GArray) now = stays(fd, backward);

        ck_assert_uint_eq(now->len, before->len);
        for (guint i = 0; i < now->len; i++)
            ck_assert_uint_eq(g_array_index(now, uint64_t, i),
                              g_array_index(before, uint64_t, backward ? before->len - 1 - i : i));
    }
}

/* As far as the end of its sector, or from there on: the other part did not reach the disk. */
static void do_half(int fd, const struct wb_prune_step *step)
{
    size_t half = MIN(step->length, SECTOR - step->at % SECTOR);

    if (step->kind != WB_PRUNE_WRITE)
        return;
    if (random_below(2))
        ck_assert_int_eq(wb_pwrite_full(fd, step->data, half, step->at), 0);
    else
        ck_assert_int_eq(wb_pwrite_full(fd, step->data + half, step->length - half, step->at + half), 0);
}

static void do_step(int fd, const struct wb_prune_step *step)
{
    if (step->kind == WB_PRUNE_WRITE)
        ck_assert_int_eq(wb_pwrite_full(fd, step->data, step->length, step->at), 0);
    else if (step->kind == WB_PRUNE_PUNCH)
        ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)step->at,
                                   (off_t)step->length), 0);
}

static int copy_of(int fd)
{
    g_autofree uint8_t *data = g_malloc(1 << 20);
    int copy = openat(dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    size_t length = 1;

    for (uint64_t at = 0; length > 0; at += length) {
        ck_assert_int_eq(wb_pread_full(fd, data, 1 << 20, at, &length), 0);
        ck_assert_int_eq(wb_pwrite_full(copy, data, length, at), 0);
    }
    return copy;
}

/* Some of the steps from `from` on, up to the next sync: the possible result of a power cut. */
static void check_some(int fd, const GArray *steps, guint from, const GArray *before)
{
    for (int attempt = 0; attempt < 3; attempt++) {
        _cleanup_close_ int copy = copy_of(fd);

        for (guint i = from; i < steps->len; i++) {
            const struct wb_prune_step *step = &g_array_index(steps, struct wb_prune_step, i);

            if (step->kind == WB_PRUNE_SYNC)
                break;
            if (random_below(3) == 0)
                do_half(copy, step);
            else if (random_below(2))
                do_step(copy, step);
        }
        check_log(copy, before);
    }
}

static void place(int fd, const GArray *before, bool everywhere, guint most)
{
    g_autoptr(GArray) steps = g_array_new(FALSE, FALSE, sizeof(struct wb_prune_step));
    uint64_t from = begin;

    do {
        ck_assert_int_eq(wb_prune_place_steps(fd, &from, border, steps), 0);
        for (guint i = 0; i < steps->len && most-- > 0; i++) {
            if (everywhere && (i == 0 || g_array_index(steps, struct wb_prune_step, i - 1).kind == WB_PRUNE_SYNC))
                check_some(fd, steps, i, before);
            do_step(fd, &g_array_index(steps, struct wb_prune_step, i));
            if (everywhere)
                check_log(fd, before);
        }
    } while (steps->len > 0 && most != (guint)-1);
}

static void setup(void)
{
    make_place(directory, "place");
    dir_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(dir_fd, 0);
}

static void teardown(void)
{
    unlinkat(dir_fd, "log", 0);
    close(dir_fd);
    rmdir(directory);
}

static void check_trailer(int fd, const struct wb_record *record)
{
    uint8_t data[WB_TRAILER_SIZE];
    uint32_t total = 0;

    ck_assert_int_eq(wb_pread_exact(fd, data, sizeof(data), record->offset + record->total - sizeof(data)), 0);
    ck_assert_int_eq(wb_record_measure_end(data, &total), 0);
    ck_assert_uint_eq(total, record->total);
}

static void check_fillers(int fd)
{
    g_autofree uint8_t *payload = g_malloc(WB_PAYLOAD_MAX);
    struct wb_log_reader reader;
    struct wb_record record;
    uint64_t left = 0;
    struct stat st;

    ck_assert_int_eq(wb_log_reader_init(&reader, fd), 0);
    wb_log_reader_seek(&reader, begin);
    while (wb_log_reader_next(&reader, &record) == 0 && record.offset < border) {
        check_trailer(fd, &record);
        /* No piece begins with a head in two sectors. */
        if (record.type != WB_REC_FILLER && record.offset % SECTOR + WB_FILLER_HEAD > SECTOR) {
            left += record.total;
            continue;
        }
        ck_assert_int_eq(record.type, WB_REC_FILLER);
        ck_assert_int_eq(wb_log_bytes_payload(&reader.bytes, &record, payload), 0);
        ck_assert(wb_prune_is_hole(fd, &reader.bytes, &record));
    }
    wb_log_reader_deinit(&reader);
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_uint_lt((uint64_t)st.st_blocks * 512, (uint64_t)st.st_size - (border - begin) / 10 * 9 + left);
}

START_TEST(test_ended_anywhere)
{
    _cleanup_close_ int fd = make_log((unsigned)_i);
    g_autoptr(GArray) before = stays(fd, false);

    place(fd, before, true, 100000);
    check_fillers(fd);
}
END_TEST

START_TEST(test_the_next_one_finishes)
{
    for (guint most = 0; most < 260; most += (guint)amount(7, 13)) {
        _cleanup_close_ int fd = make_log(most);
        g_autoptr(GArray) before = stays(fd, false);

        place(fd, before, false, most);
        place(fd, before, false, 100000);
        check_log(fd, before);
        check_fillers(fd);
    }
}
END_TEST

/* Records out of order, or longer than a filler can be: nothing is written that no reader takes. */
START_TEST(test_what_no_filler_can_be_is_refused)
{
    struct wb_record thinned = {.type = WB_REC_THINNED, .op = WB_OP_NONE, .when = 5, .thinned.until = 5};
    struct wb_record filler = {.type = WB_REC_FILLER, .op = WB_OP_NONE, .when = 5};
    struct wb_log_edits edits;

    wb_log_edits_init(&edits);
    ck_assert_int_eq(wb_log_edits_drop(&edits, &(struct wb_filler_run){.to = 4096, .when = 5, .until = 6}), -EBADMSG);
    ck_assert_int_lt(wb_log_edits_empty(&edits, &thinned, 0, 4096), 0);
    ck_assert_int_eq(wb_log_edits_empty(&edits, &filler, 0, WB_FILLER_MAX + 8), -EMSGSIZE);
    ck_assert_uint_eq(edits.list->len, 0);
    ck_assert_int_eq(wb_log_edits_empty(&edits, &filler, 0, 4096), 0);
    ck_assert_uint_eq(edits.list->len, 3);
    wb_log_edits_deinit(&edits);
}
END_TEST

int main(void)
{
    TCase *place = tcase_create("place");
    Suite *suite = suite_create("prune_place");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(place, setup, teardown);
    tcase_set_timeout(place, 120);
    tcase_add_loop_test(place, test_ended_anywhere, 0, 3);
    tcase_add_test(place, test_the_next_one_finishes);
    tcase_add_test(place, test_what_no_filler_can_be_is_refused);
    suite_add_tcase(suite, place);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/cleanup.h"
#include "base/io.h"
#include "random_record.h"
#include "record_bytes.h"
#include "store/log/log.h"
#include "wayback/error.h"
#include "place.h"
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

/*
 * Hostile bytes, the same ones in every run: random changes of valid records and logs. Nothing is read out of bounds
 * (the sanitizer checks), every walk ends, and no record is returned that was not written.
 */

#define ITERATIONS 20000
#define LOG_ITERATIONS (ITERATIONS / 16) /* times 8 logs */

/* ---- records --------------------------------------------------------------------------------- */

/* Changes a few bytes of `data`, more often to values that lengths and counts dislike. */
static void mutate(uint8_t *data, size_t length)
{
    static const uint8_t nasty[] = {0, 1, 2, 0x7f, 0x80, 0xff, '/', '.'};

    for (uint64_t n = 1 + random_below(4); n > 0 && length > 0; n--) {
        uint64_t at = random_below(length);

        switch (random_below(3)) {
        case 0:
            data[at] ^= (uint8_t)(1 << random_below(8));
            break;
        case 1:
            data[at] = nasty[random_below(sizeof(nasty))];
            break;
        default:
            for (uint64_t end = at + random_below(9); at < end && at < length; at++)
                data[at] = 0xff;
        }
    }
}

START_TEST(decoded_records_are_encoded_to_the_same_bytes)
{
    static struct random_record made;
    static uint8_t data[WB_HEAD_SIZE + WB_BODY_MAX], again[WB_HEAD_SIZE + WB_BODY_MAX];
    struct wb_record back;
    int accepted = 0;

    random_record_seed(21);
    for (int i = 0; i < ITERATIONS; i++) {
        uint32_t body, total;
        int n;

        random_record_make(&made, (enum wb_record_type)(1 + i % WB_REC_LAST));
        n = wb_record_encode(&made.record, data);
        ck_assert_int_gt(n, 0);
       /* The type is kept: others of later versions are not ours to encode. */
        mutate(data + 5, random_below(2) ? 80 : (size_t)n - 5);
        if (wb_record_measure(data, &body, &total) < 0)
            continue;
        memset(data + n, 0, sizeof(data) - (size_t)n);
        reseal(data, body);
        if (decode_exactly(data, WB_HEAD_SIZE + body, 0, &back) < 0)
            continue;
        accepted++;
        ck_assert_int_eq(wb_record_decode(data, WB_HEAD_SIZE + body, 0, &back), 0);
        ck_assert_int_eq(wb_record_encode(&back, again), (int)(WB_HEAD_SIZE + body));
        ck_assert_mem_eq(again, data, WB_HEAD_SIZE + body);
        ck_assert_uint_eq(back.total, total);
    }
    /* Neither is everything refused, nor nothing. */
    ck_assert_int_gt(accepted, ITERATIONS / 20);
    ck_assert_int_lt(accepted, ITERATIONS * 19 / 20);
}
END_TEST

START_TEST(random_bytes_are_no_record)
{
    static uint8_t data[WB_HEAD_SIZE + WB_BODY_MAX];
    struct wb_record back;

    random_record_seed(22);
    for (int i = 0; i < ITERATIONS; i++) {
        size_t length = random_below(512);

        for (size_t at = 0; at < length; at++)
            data[at] = (uint8_t)random_u64();
        if (random_below(2) && length >= 4)
            memcpy(data, "WBK1", 4);
        ck_assert_int_eq(decode_exactly(data, length, 0, &back), -EBADMSG);
    }
}
END_TEST

/* ---- logs ------------------------------------------------------------------------------------ */

#define LOG_RECORDS 24
#define LOG_MAX (256u * 1024)

static uint8_t sound[LOG_MAX], damaged[LOG_MAX];
static size_t sound_length;

/* A log in memory, every payload small, `when` from 1 on. */
static void make_log(void)
{
    static struct random_record made;
    struct wb_record *record = &made.record;

    sound_length = 0;
    for (int i = 0; i < LOG_RECORDS; i++) {
        uint8_t *at = sound + sound_length;
        int n;

        random_record_make(&made, (enum wb_record_type)(1 + i % WB_REC_LAST));
        record->when = i + 1;
        if (record->type == WB_REC_GAP)
            record->gap.since = 0;
        if (record->type == WB_REC_ATTR && record->attr.begin > 0)
            record->attr.begin = 1; /* of a stage: before the record */
        if (record->type == WB_REC_ABORT)
            record->abort.target = 1 + (int64_t)random_below((uint64_t)i + 1);
        if (record->type == WB_REC_SNAPSHOT)
            record->snapshot.moment = 1;
        if (record->type == WB_REC_FILLER)
            record->filler.until = i;
        if (record->type == WB_REC_DATA)
            record->data.count = 0;
        if (record->type == WB_REC_INDEX)
            record->index = (struct wb_rec_index){.from = random_below(sound_length), .count = 1, .types = 1};
        record->payload_length = record->payload_length ? WB_HEAD_SIZE + record->payload_length % 300 : 0;
        if (record->payload_length > 0 && record->type == WB_REC_XATTR)
            record->payload_check = 1;
        n = wb_record_encode(record, at);
        ck_assert_int_gt(n, 0);
        for (uint32_t k = 0; k < record->payload_length; k++)
            at[n++] = (uint8_t)random_u64();
        n += wb_record_encode_end(record, at + n);
        ck_assert_uint_eq((uint32_t)n, record->total);
        sound_length += (size_t)n;
    }
}

/* A copy of the sound log with something done to it. */
static size_t damage_log(void)
{
    size_t length = sound_length, from, to, n;

    memcpy(damaged, sound, sound_length);
    for (uint64_t rounds = 1 + random_below(3); rounds > 0; rounds--) {
        from = random_below(length);
        to = random_below(length);
        n = random_below(600);
        switch (random_below(6)) {
        case 0: /* cut */
            length = from + 1;
            break;
        case 1: /* bytes after the end */
            for (size_t i = 0; i < n; i++)
                damaged[length++] = (uint8_t)random_u64();
            break;
        case 2: /* a page of zeros */
            memset(damaged + from, 0, n < length - from ? n : length - from);
            break;
        case 3: /* a piece of it in another place, on a boundary that a record may have */
            from &= ~(size_t)7;
            to &= ~(size_t)7;
            n = random_below(3000);
            n = n < length - from ? n : length - from;
            n = n < length - to ? n : length - to;
            memmove(damaged + to, damaged + from, n);
            break;
        default:
            mutate(damaged + from, length - from < 64 ? length - from : 64);
        }
    }
    return length;
}

/*
 * Only records that were once written to the log may be returned, with their bytes. (No ck_assert, since it is checked
 * some million times: it is a system call.)
 */
static void check_known(const struct wb_record *record, size_t length)
{
    if (record->when < 1 || record->when > LOG_RECORDS ||
        record->type != (uint8_t)(1 + (record->when - 1) % WB_REC_LAST) ||
        record->offset + WB_HEAD_SIZE + record->body_length > length)
        ck_abort_msg("%d of type %u at %d was never put in", (int)record->when, record->type, (int)record->offset);
}

/* Whether its trailer is sound as well. One that lost it counts as long as something follows. */
static bool is_whole(const struct wb_record *record, int fd)
{
    uint8_t end[WB_TRAILER_SIZE];
    uint32_t total;

    return wb_pread_exact(fd, end, sizeof(end), record->offset + record->total - sizeof(end)) == 0 &&
           wb_record_measure_end(end, &total) == 0 && total == record->total;
}

static void check_region(const struct wb_log_reader *reader, size_t length)
{
    if (reader->damaged_from >= reader->damaged_to || reader->damaged_to > length)
        ck_abort_msg("damaged from %d to %d", (int)reader->damaged_from, (int)reader->damaged_to);
}

/* Walks to the end; returns the number of whole records. */
static int walk(int fd, size_t length, bool backward)
{
    struct wb_log_reader reader;
    struct wb_record record;
    int64_t last = backward ? INT64_MAX : -1;
    int steps = 0, records = 0, r;

    ck_assert_int_eq(wb_log_reader_init(&reader, fd), 0);
    if (!backward)
        wb_log_reader_seek(&reader, 0);
    for (;;) {
        r = backward ? wb_log_reader_prev(&reader, &record) : wb_log_reader_next(&reader, &record);
        if ((r != 0 && r != WB_END && r != WB_DAMAGED) || steps++ >= 4000)
            ck_abort_msg("a damaged log is no failing system, and ends: %d after %d steps", r, steps);
        if (r == WB_END)
            break;
        if (r == WB_DAMAGED) {
            check_region(&reader, length);
            continue;
        }
        check_known(&record, length);
        if (backward ? (int64_t)record.offset >= last : (int64_t)record.offset <= last)
            ck_abort_msg("at %d after %d", (int)record.offset, (int)last);
        last = (int64_t)record.offset;
        records += is_whole(&record, fd);
    }
    wb_log_reader_deinit(&reader);
    return records;
}

static int walk_effective(int fd)
{
    struct wb_log_reader reader;
    struct wb_log_skip skip = {0};
    struct wb_record record;
    int steps = 0, r;

    ck_assert_int_eq(wb_log_reader_init(&reader, fd), 0);
    while ((r = wb_log_reader_prev_effective(&reader, &skip, &record)) == 0 || r == WB_DAMAGED)
        if (steps++ >= 4000)
            ck_abort_msg("no end");
    wb_log_reader_deinit(&reader);
    return r;
}

START_TEST(damaged_logs_return_only_written_records)
{
    _cleanup_close_ int fd = memfd_create("log", MFD_CLOEXEC);
    int lost = 0;

    random_record_seed(23 + (uint64_t)_i);
    make_log();
    ck_assert_int_eq(wb_pwrite_full(fd, sound, sound_length, 0), 0);
    ck_assert_int_eq(walk(fd, sound_length, true), LOG_RECORDS);
    ck_assert_int_eq(walk(fd, sound_length, false), LOG_RECORDS);

    for (int i = 0; i < LOG_ITERATIONS; i++) {
        size_t length = damage_log();

        ck_assert_int_eq(ftruncate(fd, 0), 0);
        ck_assert_int_eq(wb_pwrite_full(fd, damaged, length, 0), 0);
        lost += walk(fd, length, true) < LOG_RECORDS;
        walk(fd, length, false);
        ck_assert_int_eq(walk_effective(fd), WB_END);
    }
    ck_assert_int_gt(lost, 0);
}
END_TEST

START_TEST(opening_a_damaged_log_keeps_its_sound_beginning)
{
    char path[PLACE_SIZE];
    int dir;

    random_record_seed(31);
    make_log();
    make_place(path, "mutation");
    dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < LOG_ITERATIONS; i++) {
        _cleanup_close_ int fd = openat(dir, "log", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        size_t length = damage_log();
        struct wb_log *log;
        int before, r;

        ck_assert_int_eq(wb_pwrite_full(fd, damaged, length, 0), 0);
        before = walk(fd, length, true);
        r = wb_log_open(&log, dir, "log", false);
        ck_assert_int_eq(r, 0);
        ck_assert_uint_le(log->tail, length);
        wb_log_free(log);
        ck_assert_int_eq(walk(fd, length, true), before);
    }
    unlinkat(dir, "log", 0);
    close(dir);
    rmdir(path);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mutation");
    TCase *tcase = tcase_create("mutation");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, decoded_records_are_encoded_to_the_same_bytes);
    tcase_add_test(tcase, random_bytes_are_no_record);
    tcase_add_loop_test(tcase, damaged_logs_return_only_written_records, 0, 8);
    tcase_add_test(tcase, opening_a_damaged_log_keeps_its_sound_beginning);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

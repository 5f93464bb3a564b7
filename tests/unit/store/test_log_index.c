/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The index a log carries: it changes only the path of a walk, and nothing if it is damaged or wrong. */
#include "history_tree.h"
#include "base/checksum.h"
#include "maintain/rewrite/rewrite.h"
#include "record_bytes.h"
#include "store/object/log_index.h"
#include <sys/resource.h>

/* ---- a log and its known records -------------------------------------------------------------- */

struct entry {
    struct wb_record record;
    bool aborted;
};

static struct wb_object object;
static GArray *entries; /* all but INDEX records, in the order of the log */
static GArray *indexes; /* struct wb_record */

static void setup_log(void)
{
    setup();
    op_make(&tree, "f", "text");
    object = tree_object(&tree, "f");
    entries = g_array_new(FALSE, TRUE, sizeof(struct entry));
    indexes = g_array_new(FALSE, TRUE, sizeof(struct wb_record));
}

static void teardown_log(void)
{
    g_array_unref(entries);
    g_array_unref(indexes);
    teardown();
}

static struct entry *entry_at(guint i)
{
    return &g_array_index(entries, struct entry, i);
}

static void append(unsigned type, size_t payload_length, int64_t target)
{
    static uint8_t bytes[8192];
    struct iovec payload = {bytes, payload_length};
    struct wb_record record;
    struct wb_log *log;
    uint64_t before;

    good_record(&record, (enum wb_record_type)type);
    ck_assert_int_eq(wb_store_get_log(tree.store, object, WB_FILE_UNDO, true, &log), 0);
    pthread_mutex_lock(&log->lock);
    record.when = now();
    if (type == WB_REC_DATA) {
        record.data.attrs.size = entries->len;
        record.data.count = payload_length ? 1 : 0;
        record.data.extents[0].length = payload_length;
    } else if (type == WB_REC_ATTR) {
        record.attr.attrs.size = entries->len;
        record.attr.object = object;
    } else if (type == WB_REC_ABORT) {
        record.abort.target = target;
        for (guint i = 0; i < entries->len; i++)
            entry_at(i)->aborted |= entry_at(i)->record.when == target;
    }
    before = log->tail;
    ck_assert_int_eq(wb_log_append_locked(log, &record, &payload, payload_length > 0), 0);
    wb_log_index(tree.store, log, object, before);
    pthread_mutex_unlock(&log->lock);
    wb_store_put_log(tree.store, log);
    g_array_append_val(entries, (struct entry){.record = record});
}

static int open_undo(int flags)
{
    int fd = wb_store_open_file(tree.store, object, WB_FILE_UNDO, flags | O_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    return fd;
}

static void find_indexes(void)
{
    struct wb_log_reader reader;
    struct wb_record record;
    int r;

    g_array_set_size(indexes, 0);
    ck_assert_int_eq(wb_log_reader_init(&reader, open_undo(O_RDONLY)), 0);
    wb_log_reader_seek(&reader, 0);
    while ((r = wb_log_reader_next(&reader, &record)) == 0)
        if (record.type == WB_REC_INDEX)
            g_array_append_val(indexes, record);
    ck_assert_int_eq(r, WB_END);
    close(reader.fd);
    wb_log_reader_deinit(&reader);
}

static struct wb_record *index_at(guint i)
{
    return &g_array_index(indexes, struct wb_record, i);
}

static const uint8_t *encoded(const struct wb_record *record, uint8_t data[WB_HEAD_SIZE + WB_BODY_MAX])
{
    struct wb_record copy = *record;

    ck_assert_int_gt(wb_record_encode(&copy, data), 0);
    return data;
}

static void check_entry(const struct wb_record *record, const struct entry *entry)
{
    static uint8_t mine[WB_HEAD_SIZE + WB_BODY_MAX], theirs[WB_HEAD_SIZE + WB_BODY_MAX];

    ck_assert_uint_eq(record->offset, entry->record.offset);
    ck_assert_int_eq(record->when, entry->record.when);
    ck_assert_uint_eq(record->type, entry->record.type);
    ck_assert_uint_eq(record->total, entry->record.total);
    ck_assert_uint_eq(record->payload_offset, entry->record.payload_offset);
    ck_assert_uint_eq(record->payload_length, entry->record.payload_length);
    ck_assert_uint_eq(record->payload_check, entry->record.payload_check);
    ck_assert_mem_eq(encoded(record, mine), encoded(&entry->record, theirs), WB_HEAD_SIZE + record->body_length);
}

/*
 * Walks the log: every effective record is returned, from the newest on; at a damaged one it ends. WB_END or
 * WB_DAMAGED.
 */
static int walk(void)
{
    struct wb_log_reader reader;
    struct wb_log_skip skip = {0};
    struct wb_record record;
    guint i = entries->len;
    int r;

    ck_assert_int_eq(wb_log_reader_init(&reader, open_undo(O_RDONLY)), 0);
    while ((r = wb_log_reader_prev_effective(&reader, &skip, &record)) == 0) {
        do
            ck_assert_uint_gt(i--, 0);
        while (entry_at(i)->aborted || entry_at(i)->record.type == WB_REC_ABORT);
        check_entry(&record, entry_at(i));
    }
    if (r == WB_END)
        while (i > 0 && (entry_at(i - 1)->aborted || entry_at(i - 1)->record.type == WB_REC_ABORT))
            i--;
    ck_assert(r == WB_DAMAGED || (r == WB_END && i == 0));
    close(reader.fd);
    wb_log_reader_deinit(&reader);
    return r;
}

static void flip_byte(uint64_t offset)
{
    int fd = open_undo(O_RDWR);
    uint8_t byte;

    ck_assert_int_eq(wb_pread_exact(fd, &byte, 1, offset), 0);
    byte ^= 0x21;
    ck_assert_int_eq(wb_pwrite_full(fd, &byte, 1, offset), 0);
    close(fd);
}

/* ---- coverage ---------------------------------------------------------------------------------- */

START_TEST(a_walk_is_the_same_with_and_without_indexes)
{
    static const uint64_t strides[] = {1, 300, 2000, 9000, 40000};
    GRand *rand = g_rand_new_with_seed((guint32)_i);

    tree.store->index_stride = strides[_i % 5];
    for (int n = 0; n < 300; n++) {
        int what = g_rand_int_range(rand, 0, 10);
        guint back = (guint)g_rand_int_range(rand, 1, 8);

        if (what == 0 && entries->len >= back && entry_at(entries->len - back)->record.type != WB_REC_ABORT)
            append(WB_REC_ABORT, 0, entry_at(entries->len - back)->record.when);
        else if (what < 3)
            append(WB_REC_ATTR, 0, 0);
        else
            append(WB_REC_DATA, (size_t)g_rand_int_range(rand, 1, 1500), 0);
        if (n % 50 == 0)
            ck_assert_int_eq(walk(), WB_END);
    }
    ck_assert_int_eq(walk(), WB_END);
    find_indexes();
    ck_assert_uint_gt(indexes->len, 0);
    g_rand_free(rand);
}
END_TEST

static void make_log(int records, uint64_t stride)
{
    tree.store->index_stride = stride;
    for (int n = 0; n < records; n++)
        append(n % 7 ? WB_REC_DATA : WB_REC_ATTR, n % 7 ? 400 : 0, 0);
    find_indexes();
    ck_assert_uint_ge(indexes->len, 3);
}

START_TEST(indexes_adjoin_and_list_their_records)
{
    uint64_t from = 0, previous = 0;
    guint i = 0;

    make_log(60, 4000);
    for (guint n = 0; n < indexes->len; n++) {
        const struct wb_rec_index *index = &index_at(n)->index;
        uint32_t types = 0;

        ck_assert_uint_eq(index->from, from);
        ck_assert_uint_eq(index->previous, previous);
        ck_assert_int_eq(index->first, entry_at(i)->record.when);
        ck_assert_int_eq(index->attrs_when, entry_at(i)->record.when);
        ck_assert_uint_eq(index->attrs.size, i);
        for (uint32_t count = index->count; count > 0; count--, i++)
            types |= 1u << entry_at(i)->record.type;
        ck_assert_int_eq(index->last, entry_at(i - 1)->record.when);
        ck_assert_uint_eq(index->types, types);
        previous = index_at(n)->offset;
        ck_assert_uint_eq(entry_at(i - 1)->record.offset + entry_at(i - 1)->record.total, previous);
        from = previous + index_at(n)->total;
    }
}
END_TEST

START_TEST(records_in_an_index_need_not_be_sound_themselves)
{
    make_log(60, 4000);
    for (guint i = 0; entry_at(i)->record.offset < index_at(indexes->len - 1)->offset; i++)
        flip_byte(entry_at(i)->record.offset + 20);
    ck_assert_int_eq(walk(), WB_END);
    flip_byte(entry_at(entries->len - 1)->record.offset + 20);
    ck_assert_int_eq(walk(), WB_DAMAGED);
}
END_TEST

START_TEST(small_records_have_no_copies)
{
    tree.store->index_stride = WB_INDEX_STRIDE;
    for (int n = 0; n < 60000; n++)
        append(WB_REC_ATTR, 0, 0);
    find_indexes();
    ck_assert_uint_ge(indexes->len, 2);
    ck_assert_uint_eq(index_at(1)->payload_length, 0);
    ck_assert_uint_eq(index_at(1)->index.from, index_at(0)->offset + index_at(0)->total);
    ck_assert_int_eq(walk(), WB_END);
}
END_TEST

START_TEST(a_log_without_indexes_gets_them_from_now_on)
{
    tree.store->index_stride = UINT64_MAX;
    for (int n = 0; n < 200; n++)
        append(WB_REC_DATA, 400, 0);
    find_indexes();
    ck_assert_uint_eq(indexes->len, 0);
    make_log(60, 4000);
    /* The first one reaches back some strides only: opening a store must not read all of it. */
    ck_assert_uint_gt(index_at(0)->index.from, 0);
    ck_assert_uint_eq(index_at(0)->index.previous, 0);
    ck_assert_int_eq(walk(), WB_END);
}
END_TEST

/* ---- passing over -------------------------------------------------------------------------------- */

static bool count_passed(const struct wb_record *record, void *data)
{
    *(uint32_t *)data += record->index.count;
    return true;
}

/* The number of records returned, and of those passed over. */
static void count_walk(uint32_t *came, uint32_t *passed)
{
    struct wb_log_reader reader;
    struct wb_log_skip skip = {0};
    struct wb_record record;
    int r;

    *came = *passed = 0;
    ck_assert_int_eq(wb_log_reader_init(&reader, open_undo(O_RDONLY)), 0);
    reader.pass = count_passed;
    reader.pass_data = passed;
    while ((r = wb_log_reader_prev_effective(&reader, &skip, &record)) == 0)
        ++*came;
    ck_assert_int_eq(r, WB_END);
    close(reader.fd);
    wb_log_reader_deinit(&reader);
}

START_TEST(records_in_an_index_can_be_passed_over)
{
    uint32_t came, passed;

    make_log(60, 4000);
    count_walk(&came, &passed);
    ck_assert_uint_gt(passed, 40);
    ck_assert_uint_eq(came + passed, 60);
}
END_TEST

START_TEST(nothing_is_passed_over_if_something_was_aborted_or_left_out)
{
    uint32_t came, passed, exact = 0;

    make_log(30, 4000);
    append(WB_REC_ABORT, 0, entry_at(29)->record.when);
    make_log(30, 4000);
    append(WB_REC_GAP, 0, 0);
    make_log(30, 4000);
    for (guint i = 0; i < indexes->len; i++)
        if (index_at(i)->index.types & (1u << WB_REC_ABORT | 1u << WB_REC_GAP))
            exact += index_at(i)->index.count;
    count_walk(&came, &passed);
    ck_assert_uint_gt(exact, 1);
    ck_assert_uint_eq(came + passed, 90); /* the gap, but not the aborted one */
    ck_assert_uint_ge(came, exact - 2);

    /* An abort after an index, of a change it covers: that one is read. */
    append(WB_REC_ABORT, 0, index_at(indexes->len - 2)->index.last);
    tree.store->index_stride = UINT64_MAX;
    count_walk(&came, &passed);
    ck_assert_uint_eq(came + passed, 89);
    ck_assert_int_eq(walk(), WB_END);
}
END_TEST

/* ---- damage and lies ----------------------------------------------------------------------------- */

START_TEST(a_damaged_index_costs_nothing)
{
    const struct wb_record *last;
    int damaged = 0;

    make_log(60, 4000);
    for (guint n = 0; n < indexes->len - 1; n++) {
        const struct wb_record *record = index_at(n);

        for (uint64_t at = 0; at < record->total; at += at < 200 || at + 40 > record->total ? 1 : 37) {
            flip_byte(record->offset + at);
            ck_assert_msg(walk() == WB_END, "byte %d of index %u", (int)at, n);
            flip_byte(record->offset + at);
        }
    }
    /* No index covers the newest one: its head costs as much as a head, the rest nothing. */
    last = index_at(indexes->len - 1);
    for (uint64_t at = 0; at < last->total; at += at < 200 || at + 40 > last->total ? 1 : 37) {
        flip_byte(last->offset + at);
        if (walk() == WB_DAMAGED) {
            ck_assert_uint_lt(at, WB_HEAD_SIZE + last->body_length);
            damaged++;
        }
        flip_byte(last->offset + at);
    }
    ck_assert_int_gt(damaged, 0);
    ck_assert_int_eq(walk(), WB_END);
}
END_TEST

/* Puts an INDEX with other contents in the place of one, all checksums right. */
static void replace_index(const struct wb_record *old, const struct wb_rec_index *index, const uint8_t *copies)
{
    uint8_t data[WB_HEAD_SIZE + WB_BODY_MAX];
    struct wb_record record = *old;
    int fd = open_undo(O_RDWR), length;

    record.index = *index;
    record.payload_check = wb_checksum(copies, record.payload_length);
    length = wb_record_encode(&record, data);
    ck_assert_int_gt(length, 0);
    ck_assert_uint_eq(record.total, old->total);
    ck_assert_int_eq(wb_pwrite_full(fd, data, (size_t)length, old->offset), 0);
    ck_assert_int_eq(wb_pwrite_full(fd, copies, record.payload_length, old->payload_offset), 0);
    close(fd);
}

START_TEST(a_wrong_index_costs_nothing)
{
    g_autofree uint8_t *copies = NULL, *lie = NULL;
    const struct wb_record *record;
    struct wb_rec_index index;
    size_t length;
    int fd;

    make_log(60, 4000);
    record = index_at(1);
    length = record->payload_length;
    copies = g_malloc(length);
    lie = g_malloc(length);
    fd = open_undo(O_RDONLY);
    ck_assert_int_eq(wb_log_read_payload(fd, record, copies), 0);
    close(fd);

    for (int i = 0; i < 8; i++) {
        index = record->index;
        memcpy(lie, copies, length);
        switch (i) {
        case 0:
            index.from -= 8;
            break;
        case 1:
            index.from += entry_at(0)->record.total;
            break;
        case 2:
            index.from = record->offset; /* nothing */
            break;
        case 3:
            index.from = record->offset + 4096;
            break;
        case 4:
            index.count++;
            break;
        case 5: /* a copy that is none */
            lie[0] = 1;
            break;
        case 6: /* a head that its checksum does not fit */
            lie[WB_HEAD_SIZE + 3] ^= 1;
            break;
        case 7: /* a copy's length */
            lie[24] += 8;
            break;
        }
        replace_index(record, &index, lie);
        ck_assert_msg(walk() == WB_END, "lie %d", i);
    }
    replace_index(record, &record->index, copies);
    ck_assert_int_eq(walk(), WB_END);
}
END_TEST

/* Copies must not be found by a search for a lost head. */
START_TEST(no_copy_is_taken_for_a_record)
{
    struct wb_log_reader reader;
    struct wb_record record;
    guint i = 0;
    int r;

    make_log(60, 4000);
    for (guint n = 0; n < indexes->len; n++) {
        flip_byte(index_at(n)->offset + 9);
        flip_byte(index_at(n)->offset + index_at(n)->total - 2);
    }
    ck_assert_int_eq(wb_log_reader_init(&reader, open_undo(O_RDONLY)), 0);
    wb_log_reader_seek(&reader, 0);
    while ((r = wb_log_reader_next(&reader, &record)) != WB_END) {
        ck_assert(r == 0 || r == WB_DAMAGED);
        if (r == 0)
            check_entry(&record, entry_at(i++));
    }
    ck_assert_uint_eq(i, entries->len);
    close(reader.fd);
    wb_log_reader_deinit(&reader);
}
END_TEST

/* ---- later changes of an index ------------------------------------------------------------------- */

START_TEST(an_index_is_removed_with_the_withdrawn_change)
{
    struct rlimit old, limit;
    struct wb_change change;
    struct wb_target target;
    struct wb_overwrite overwrite = {.op = WB_OP_WRITE, .length = 2, .new_data = "xy", .size_after = 4};
    struct stat before, st;
    int fd;

    op_write(&tree, "f", 0, "ab");
    tree.store->index_stride = 1;
    op_write(&tree, "f", 0, "cd");
    find_indexes();
    ck_assert_uint_eq(indexes->len, 1);
    fd = open_undo(O_RDONLY);
    ck_assert_int_eq(fstat(fd, &before), 0);
    close(fd);

    fd = tree_target(&tree, "f", O_RDWR, &target);
    ck_assert_int_eq(wb_capture_content(tree.store, &change, &target, fd, &overwrite, 0), 0);
    find_indexes();
    ck_assert_uint_eq(indexes->len, 2);
    close(fd);
    /* No space for an ABORT. */
    fd = open_undo(O_RDONLY);
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = (struct rlimit){(rlim_t)st.st_size, old.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    wb_capture_end(&change, -EIO);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_int_eq(st.st_size, before.st_size);
    close(fd);
    expect_content("f", now(), "cdxt");
}
END_TEST

START_TEST(an_index_that_cannot_be_written_is_no_failure)
{
    struct rlimit old, limit;
    struct stat st;
    int64_t t;
    int fd;

    op_write(&tree, "f", 0, "ab");
    t = now();
    fd = open_undo(O_RDONLY);
    ck_assert_int_eq(fstat(fd, &st), 0);
    close(fd);
    tree.store->index_stride = 150; /* less than a record */
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = (struct rlimit){(rlim_t)st.st_size * 2 + 8, old.rlim_max}; /* one record more, or little more */
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    op_write(&tree, "f", 0, "cd");
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
    find_indexes();
    ck_assert_uint_eq(indexes->len, 0);
    expect_content("f", t, "abxt");
    op_write(&tree, "f", 0, "ef");
    find_indexes();
    ck_assert_uint_eq(indexes->len, 1);
    ck_assert_uint_eq(index_at(0)->index.from, 0);
    expect_content("f", t, "abxt");
}
END_TEST

START_TEST(a_log_written_anew_has_none)
{
    struct wb_rewrite rewrite;
    struct wb_log_reader reader;
    struct wb_record record;
    int64_t t;

    tree.store->index_stride = 1;
    op_write(&tree, "f", 0, "ab");
    t = now();
    op_write(&tree, "f", 0, "cd");
    op_write(&tree, "f", 0, "ef");
    find_indexes();
    ck_assert_uint_eq(indexes->len, 3);
    ck_assert_int_eq(wb_rewrite_begin(&rewrite, tree.store, object, WB_FILE_UNDO), 0);
    ck_assert_int_eq(wb_log_reader_init(&reader, open_undo(O_RDONLY)), 0);
    wb_log_reader_seek(&reader, 0);
    while (wb_log_reader_next(&reader, &record) == 0)
        ck_assert_int_eq(wb_rewrite_append(&rewrite, &record, reader.fd), 0);
    close(reader.fd);
    wb_log_reader_deinit(&reader);
    ck_assert_int_eq(wb_rewrite_commit(&rewrite), 0);
    find_indexes();
    ck_assert_uint_eq(indexes->len, 0);
    expect_content("f", t, "abxt");
    op_write(&tree, "f", 0, "gh");
    find_indexes();
    ck_assert_uint_eq(indexes->len, 1);
    expect_content("f", t, "abxt");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("log_index");
    TCase *tcase = tcase_create("log_index");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup_log, teardown_log);
    tcase_add_loop_test(tcase, a_walk_is_the_same_with_and_without_indexes, 0, amount(20, 10));
    tcase_add_test(tcase, indexes_adjoin_and_list_their_records);
    tcase_add_test(tcase, records_in_an_index_need_not_be_sound_themselves);
    tcase_add_test(tcase, small_records_have_no_copies);
    tcase_add_test(tcase, a_log_without_indexes_gets_them_from_now_on);
    tcase_add_test(tcase, records_in_an_index_can_be_passed_over);
    tcase_add_test(tcase, nothing_is_passed_over_if_something_was_aborted_or_left_out);
    tcase_add_test(tcase, a_damaged_index_costs_nothing);
    tcase_add_test(tcase, a_wrong_index_costs_nothing);
    tcase_add_test(tcase, no_copy_is_taken_for_a_record);
    tcase_add_test(tcase, an_index_is_removed_with_the_withdrawn_change);
    tcase_add_test(tcase, an_index_that_cannot_be_written_is_no_failure);
    tcase_add_test(tcase, a_log_written_anew_has_none);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

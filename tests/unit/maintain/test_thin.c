/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Thinning: kept versions are as they were, and in place of a removed version, the one before it shows. */
#include "maintain/rewrite/compact.h"
#include "maintain/erase/erase.h"
#include "maintain/thin/thin.h"
#include "maintain/thin/thin_store.h"
#include "store/tables/snapshots.h"
#include "random_record.h"
#include "stage_ops.h"
#include "store/tables/received.h"
#include "wayback/when.h"

/* A moment after a change, and its state; `name` is the name of the file then. */
struct moment {
    int64_t when;
    const char *name;
    char *text;
    ssize_t length;
    struct wb_attrs attrs;
    char value[16];
};

static struct wb_object object;
static GArray *moments;  /* of struct moment                                    */
static GArray *expected; /* of guint: which of them shows at each of them       */
static GArray *dropped;  /* of struct wb_thin_drop, all so far                  */
static GArray *undo;     /* of int64_t: changes in the undo log, the oldest first */

static void look_at(int64_t when, const char *name, struct moment *ret)
{
    struct wb_revision *revision = find(name, when, NULL);
    ssize_t n;

    *ret = (struct moment){.when = when, .name = name};
    ck_assert_ptr_nonnull(revision);
    ret->text = content_of(revision, &ret->length);
    ck_assert_msg(ret->length >= 0, "%zd %s", ret->length, wb_history_error());
    ck_assert_int_eq(wb_revision_attrs(history, revision, &ret->attrs), 0);
    n = wb_revision_getxattr(history, revision, "user.note", ret->value, sizeof(ret->value) - 1);
    ck_assert_msg(n >= 0 || n == -ENODATA, "%zd", n);
    wb_revision_unref(revision);
}

static void remember(const char *name)
{
    struct moment moment;
    int64_t when = now();

    look_at(when, name, &moment);
    g_array_append_val(moments, moment);
    g_array_append_val(expected, ((guint){moments->len - 1}));
}

static const struct moment *moment_at(guint i)
{
    return &g_array_index(moments, struct moment, i);
}

static void check_moments(void)
{
    for (guint i = 0; i < moments->len; i++) {
        const struct moment *wanted = moment_at(g_array_index(expected, guint, i));
        struct moment found;

        look_at(moment_at(i)->when, moment_at(i)->name, &found);
        ck_assert_msg(found.length == wanted->length && memcmp(found.text, wanted->text, (size_t)found.length) == 0,
                      "moment %u: '%.99s' and not '%.99s'", i, found.text, wanted->text);
        ck_assert_msg(memcmp(&found.attrs, &wanted->attrs, sizeof(found.attrs)) == 0, "moment %u: attributes", i);
        ck_assert_msg(strcmp(found.value, wanted->value) == 0, "moment %u: attribute %s and not %s", i, found.value,
                      wanted->value);
        g_free(found.text);
    }
}

/* Which changes are in the undo log, and which in a catalog (or both): `all`. */
static void find_changes(GArray *catalog)
{
    g_autoptr(GPtrArray) all = tree_records(&tree);

    g_array_set_size(undo, 0);
    for (guint i = 0; i < all->len; i++) {
        const struct kept *kept = g_ptr_array_index(all, i);
        bool of_file = kept->file == WB_FILE_UNDO && wb_object_equal(kept->log, object);

        if (kept->record.type == WB_REC_INDEX || kept->record.type == WB_REC_PLACE ||
            wb_record_is_staged(&kept->record))
            continue;
        g_array_append_val(of_file ? undo : catalog, kept->record.written);
    }
}

static bool tells_between(const GArray *whens, int64_t from, int64_t until)
{
    for (guint i = 0; i < whens->len; i++)
        if (g_array_index(whens, int64_t, i) >= from && g_array_index(whens, int64_t, i) <= until)
            return true;
    return false;
}

/* In [from, until) the state just before shows, whether that is kept or not. */
static void expect_drop(int64_t from, int64_t until)
{
    g_array_append_val(dropped, ((struct wb_thin_drop){from, until}));
    for (guint i = 1; i < moments->len; i++)
        for (guint k = 0; k < dropped->len; k++) {
            const struct wb_thin_drop *drop = &g_array_index(dropped, struct wb_thin_drop, k);

            if (moment_at(i)->when >= drop->from && moment_at(i)->when < drop->until)
                g_array_index(expected, guint, i) = g_array_index(expected, guint, i - 1);
        }
}

/* Drops about one of `rarely` versions; how many. */
static unsigned thin_some(uint64_t rarely)
{
    g_autoptr(GArray) drops = g_array_new(FALSE, FALSE, sizeof(struct wb_thin_drop));
    g_autoptr(GArray) catalog = g_array_new(FALSE, FALSE, sizeof(int64_t));
    struct wb_thin thin = {0};

    find_changes(catalog);
    for (guint i = 0; i + 1 < undo->len; i++) {
        struct wb_thin_drop drop = {g_array_index(undo, int64_t, i), g_array_index(undo, int64_t, i + 1)};

        if (drop.from == drop.until || random_below(rarely) > 0 || tells_between(catalog, drop.from, drop.until))
            continue;
        g_array_append_val(drops, drop);
        expect_drop(drop.from, drop.until);
    }
    thin.drops = (const struct wb_thin_drop *)(void *)drops->data;
    thin.count = drops->len;
    ck_assert_int_eq(wb_thin_log(tree.store, object, &thin), 0);
    return drops->len;
}

static void setup_file(void)
{
    setup();
    moments = g_array_new(FALSE, TRUE, sizeof(struct moment));
    expected = g_array_new(FALSE, FALSE, sizeof(guint));
    dropped = g_array_new(FALSE, FALSE, sizeof(struct wb_thin_drop));
    undo = g_array_new(FALSE, FALSE, sizeof(int64_t));
    op_make(&tree, "f", "some text to begin with");
    object = tree_object(&tree, "f");
    remember("f");
    op_write(&tree, "f", 0, "S");
    remember("f");
}

static void teardown_file(void)
{
    for (guint i = 0; i < moments->len; i++)
        g_free(moment_at(i)->text);
    g_array_unref(moments);
    g_array_unref(expected);
    g_array_unref(dropped);
    g_array_unref(undo);
    teardown();
    tree_index_stride = 0;
}

static const char *some_text(void)
{
    static char text[4000];
    size_t length = 1 + random_below(random_below(8) ? 20 : sizeof(text) - 1);

    memset(text, 'a' + (int)random_below(26), length);
    text[length] = '\0';
    return text;
}

/* The state before the next change is checked, too. */
static void end_stage(const char *name)
{
    if (!stage)
        return;
    stage_over(name);
    remember(name);
}

/* A part of a stage, or its end. */
static void some_part(const char *name)
{
    if (stage && random_below(4) == 0)
        stage_over(name);
    else if (random_below(5) == 0)
        stage_cut(name, random_below(20));
    else
        stage_write(name, random_below(40), some_text(), 0);
}

static void some_change(const char *name)
{
    char value[16];

    switch (random_below(10)) {
    case 0:
        op_truncate(&tree, name, random_below(20));
        break;
    case 1:
        op_chmod(&tree, name, 0600 + (mode_t)random_below(0100));
        break;
    case 2:
        snprintf(value, sizeof(value), "%d", (int)random_below(1000));
        op_setxattr(&tree, name, "user.note", value);
        break;
    default:
        op_write(&tree, name, random_below(40), some_text());
    }
}

START_TEST(one_version_is_removed)
{
    struct wb_thin_drop drop;
    struct wb_thin thin = {.drops = &drop, .count = 1};
    g_autoptr(GArray) catalog = g_array_new(FALSE, FALSE, sizeof(int64_t));

    op_write(&tree, "f", 5, "TEXT");
    remember("f");
    op_write(&tree, "f", 5, "SECRETS");
    remember("f");
    op_truncate(&tree, "f", 7);
    remember("f");
    op_write(&tree, "f", 0, "more");
    remember("f");
    check_moments();
    find_changes(catalog);
    ck_assert_uint_eq(undo->len, 5);
    drop = (struct wb_thin_drop){g_array_index(undo, int64_t, 2), g_array_index(undo, int64_t, 3)};
    ck_assert_int_eq(wb_erased_read(tree.store->dir_fd).last, 0);
    ck_assert_int_eq(wb_thin_log(tree.store, object, &thin), 0);
    ck_assert(thin.changed);
    ck_assert_uint_eq(thin.dropped, 1);
    /* A copy that was made before is not updated. */
    ck_assert_int_ge(wb_erased_read(tree.store->dir_fd).last, g_array_index(undo, int64_t, 4));
    expect_drop(drop.from, drop.until);
    ck_assert_uint_eq(g_array_index(expected, guint, 3), 2);
    check_moments();
    /* Nothing is left of it, except the parts it shares with kept ones. */
    g_autoptr(GPtrArray) all = tree_records(&tree);
    for (guint i = 0; i < all->len; i++) {
        const struct kept *kept = g_ptr_array_index(all, i);

        ck_assert_ptr_null(memmem(kept->payload ? (const char *)kept->payload : "", kept->record.payload_length,
                                  "SECRETS", 7));
    }
    /* Again, it frees nothing. */
    thin = (struct wb_thin){.drops = &drop, .count = 1};
    ck_assert_int_eq(wb_thin_log(tree.store, object, &thin), 0);
    ck_assert(!thin.changed);
    check_moments();
}
END_TEST

START_TEST(the_list_marks_the_place)
{
    struct wb_thin_drop drop;
    struct wb_thin thin = {.drops = &drop, .count = 1};
    g_autoptr(GArray) catalog = g_array_new(FALSE, FALSE, sizeof(int64_t));
    struct wb_versions *versions;
    struct wb_version version;
    struct wb_revision *root;
    unsigned thinned = 0, count = 0;

    for (int i = 0; i < 6; i++)
        op_write(&tree, "f", 1, i % 2 ? "abc" : "defghi");
    find_changes(catalog);
    drop = (struct wb_thin_drop){g_array_index(undo, int64_t, 2), g_array_index(undo, int64_t, 5)};
    ck_assert_int_eq(wb_thin_log(tree.store, object, &thin), 0);
    ck_assert_uint_eq(thin.dropped, 3);
    ck_assert_int_eq(wb_revision_root(history, WB_WHEN_PRESENT, &root), 0);
    ck_assert_int_eq(wb_versions_open(history, root, "f", &versions), 0);
    while (wb_versions_next(versions, &version) == 0) {
        count++;
        if (!version.thinned_since)
            continue;
        thinned++;
        ck_assert_int_eq(version.thinned_since, drop.from);
        ck_assert_int_eq(version.when, drop.until);
        ck_assert_uint_eq(version.op, WB_OP_WRITE);
    }
    ck_assert_uint_eq(thinned, 1);
    ck_assert_uint_eq(count, 9 - 3); /* created, written, and 7 in the undo log */
    wb_versions_free(versions);
    wb_revision_unref(root);
}
END_TEST

/* Changes that count together with a later one are after the moment. */
START_TEST(an_erasure_before_a_moment_takes_nothing_from_kept_versions)
{
    struct wb_thin_drop drop;
    struct wb_thin thin = {.drops = &drop, .count = 1};
    g_autoptr(GArray) catalog = g_array_new(FALSE, FALSE, sizeof(int64_t));
    struct wb_error why;
    struct wb_revision *root;
    struct moment found;

    op_chmod(&tree, "f", 0604);
    remember("f");
    op_write(&tree, "f", 0, "T");
    remember("f");
    find_changes(catalog);
    drop = (struct wb_thin_drop){g_array_index(undo, int64_t, 1), g_array_index(undo, int64_t, 2)};
    ck_assert_int_eq(wb_thin_log(tree.store, object, &thin), 0);
    ck_assert_uint_eq(thin.dropped, 1);
    expect_drop(drop.from, drop.until);
    check_moments();
    ck_assert_int_eq(wb_revision_root(history, WB_WHEN_PRESENT, &root), 0);
    ck_assert_int_eq(wb_erase(history, root, "f", 0, moment_at(2)->when, 0, NULL, &why), 0);
    wb_revision_unref(root);
    look_at(moment_at(2)->when, "f", &found);
    ck_assert_uint_eq(found.attrs.mode, moment_at(1)->attrs.mode);
    ck_assert_mem_eq(found.text, moment_at(1)->text, (size_t)found.length);
    g_free(found.text);
}
END_TEST

/* A file that is being read when its version is removed. */
START_TEST(a_reader_is_refused_and_not_given_another_version)
{
    struct wb_thin_drop drop;
    struct wb_thin thin = {.drops = &drop, .count = 1};
    g_autoptr(GArray) catalog = g_array_new(FALSE, FALSE, sizeof(int64_t));
    struct wb_file_view *gone, *kept;
    struct wb_revision *revisions[2];
    char text[64];

    for (int i = 0; i < 4; i++) {
        op_write(&tree, "f", 1, i % 2 ? "abc" : "def");
        remember("f");
    }
    for (int i = 0; i < 2; i++)
        revisions[i] = find("f", moment_at(3 + (guint)i)->when, NULL);
    ck_assert_int_eq(wb_file_view_open(history, revisions[0], &gone), 0);
    ck_assert_int_eq(wb_file_view_open(history, revisions[1], &kept), 0);
    find_changes(catalog);
    drop = (struct wb_thin_drop){g_array_index(undo, int64_t, 2), g_array_index(undo, int64_t, 3)};
    ck_assert_int_eq(wb_thin_log(tree.store, object, &thin), 0);
    /* And not when it is asked again, either. */
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(wb_file_view_pread(gone, text, sizeof(text), 0), -EIO);
    ck_assert_ptr_nonnull(strstr(wb_history_error(), "not kept any more"));
    ck_assert_int_eq(wb_file_view_pread(kept, text, sizeof(text), 0), moment_at(4)->length);
    ck_assert_mem_eq(text, moment_at(4)->text, (size_t)moment_at(4)->length);
    wb_file_view_free(gone);
    wb_file_view_free(kept);
    for (int i = 0; i < 2; i++)
        wb_revision_unref(revisions[i]);
}
END_TEST

/* Of two stages next to each other; bytes that only one of them records are kept, and those in between are gone. */
START_TEST(a_version_that_ends_a_stage_is_removed)
{
    struct wb_thin_drop drop;
    struct wb_thin thin = {.drops = &drop, .count = 1};
    g_autoptr(GArray) catalog = g_array_new(FALSE, FALSE, sizeof(int64_t));
    g_autoptr(GPtrArray) all = NULL;

    for (int i = 0; i < 3; i++) {
        stage_write("f", 5, i == 1 ? "SECRETS" : "changed", 0);
        remember("f");
        stage_write("f", 12 + (uint64_t)i, "and more", 0);
        stage_cut("f", 14);
        remember("f");
        stage_over("f");
        remember("f");
    }
    find_changes(catalog);
    ck_assert_uint_eq(undo->len, 4); /* the first of them was not in a stage */
    drop = (struct wb_thin_drop){g_array_index(undo, int64_t, 2), g_array_index(undo, int64_t, 3)};
    ck_assert_int_eq(wb_thin_log(tree.store, object, &thin), 0);
    ck_assert_uint_eq(thin.dropped, 1);
    expect_drop(drop.from, drop.until);
    check_moments();
    all = tree_records(&tree);
    for (guint i = 0; i < all->len; i++) {
        const struct kept *kept = g_ptr_array_index(all, i);
        bool of_last = kept->record.written > drop.from && kept->record.type != WB_REC_INDEX;

        ck_assert_ptr_null(memmem(kept->payload ? (const char *)kept->payload : "", kept->record.payload_length,
                                  "SECRETS", 7));
        ck_assert_msg(!(kept->record.flags & WB_RECORD_COALESCED) == !of_last, "record %u", i);
    }
    thin = (struct wb_thin){.drops = &drop, .count = 1};
    ck_assert_int_eq(wb_thin_log(tree.store, object, &thin), 0);
    ck_assert(!thin.changed);
}
END_TEST

START_TEST(random_versions_are_removed)
{
    bool staged = _i % 3 > 0; /* some or most of the changes */
    const char *name = "f";
    unsigned count = 0;

    teardown_file();
    tree_index_stride = _i % 2 ? 4096 : 0;
    setup_file();
    random_record_seed(700 + (uint64_t)_i);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 40; i++) {
            if (random_below(15) == 0) {
                const char *to = *name == 'f' ? "g" : "f";

                end_stage(name);
                op_rename(&tree, name, to, 0);
                name = to;
            } else if (staged && random_below(_i % 3 == 1 ? 2 : 20)) {
                some_part(name);
            } else {
                end_stage(name);
                some_change(name);
            }
            remember(name);
        }
        count += thin_some(1 + random_below(4));
        check_moments();
        if (random_below(2)) {
            struct wb_compact compact = {.before = WB_WHEN_PRESENT,
                                         .flags = random_below(2) ? WB_COMPACT_UNDO : 0};

            ck_assert_int_eq(wb_compact_log(tree.store, &compact, object, WB_FILE_UNDO), 0);
            check_moments();
        }
    }
    end_stage(name);
    check_moments();
    ck_assert_uint_gt(count, 20);
}
END_TEST

/* ---- all files ------------------------------------------------------------------------------- */

static bool never(void *data)
{
    (void)data;
    return false;
}

static void nothing(void *data)
{
    (void)data;
}

static struct wb_thin_count thin_all(const struct wb_retention *retention)
{
    struct wb_thin_options options = {.retention = *retention, .stop = never, .own = nothing, .release = nothing};
    struct wb_thin_count count = {0};
    struct wb_thinner *thinner;

    ck_assert_int_eq(wb_thinner_begin(&thinner, tree.store, &options, wb_store_now(tree.store)), 0);
    for (unsigned i = 0; i < WB_THIN_STEPS; i++)
        ck_assert_int_eq(wb_thinner_step(thinner, i, &count), 0);
    wb_thinner_free(thinner);
    return count;
}

/* Every version but the newest is removed: if a name changed, the state then is kept. */
START_TEST(a_rule_for_all_files)
{
    const struct wb_retention retention = {.most = 1};
    struct wb_thin_count count;
    const char *name = "f";

    random_record_seed(33);
    for (int i = 0; i < 30; i++) {
        if (i % 10 == 9) {
            op_rename(&tree, name, *name == 'f' ? "g" : "f", 0);
            name = *name == 'f' ? "g" : "f";
        } else {
            op_write(&tree, name, (uint64_t)i, "changed");
        }
        remember(name);
    }
    count = thin_all(&retention);
    ck_assert_uint_eq(count.kept, 0);
    ck_assert_uint_gt(count.dropped, 10);
    /* Moments are numbered as the changes before them; renames are 11, 21 and 31. */
    for (guint i = 1; i < moments->len; i++) {
        bool stays = i % 10 == 0 || (i % 10 == 1 && i > 1);

        if (!stays)
            g_array_index(expected, guint, i) = g_array_index(expected, guint, i - 1);
    }
    check_moments();
    ck_assert_uint_eq(thin_all(&retention).dropped, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("thin");
    TCase *tcase = tcase_create("log");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tcase, setup_file, teardown_file);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, one_version_is_removed);
    tcase_add_test(tcase, a_version_that_ends_a_stage_is_removed);
    tcase_add_test(tcase, the_list_marks_the_place);
    tcase_add_test(tcase, an_erasure_before_a_moment_takes_nothing_from_kept_versions);
    tcase_add_test(tcase, a_reader_is_refused_and_not_given_another_version);
    tcase_add_test(tcase, a_rule_for_all_files);
    tcase_add_loop_test(tcase, random_versions_are_removed, 0, amount(6, 4));
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

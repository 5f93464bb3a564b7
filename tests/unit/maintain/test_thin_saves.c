/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Files that were saved as editors do, found in the catalog of their directory; and cases that only look like it. */
#include "maintain/thin/thin_saves.h"
#include "place.h"

#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct wb_object dir = {1, 1}, elsewhere = {2, 1};

static char path[PLACE_SIZE];
static int dir_fd;
static struct wb_log *catalog;
static int64_t when;
static struct wb_thin_saves saves;

/* Fields of the next records that are unusual. */
static struct {
    uint8_t flags;
    uint32_t nlink;
    struct wb_object from;
} odd;

static void begin(void)
{
    make_place(path, "saves");
    dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(dir_fd, 0);
    ck_assert_int_eq(wb_log_open(&catalog, dir_fd, "log", true), 0);
    memset(&odd, 0, sizeof(odd));
    odd.nlink = 1;
    odd.from = dir;
    when = 0;
    wb_thin_saves_init(&saves, dir);
}

static void end(void)
{
    wb_thin_saves_deinit(&saves);
    wb_log_free(catalog);
    unlinkat(dir_fd, "log", 0);
    close(dir_fd);
    rmdir(path);
}

/* ---- records --------------------------------------------------------------------------------- */

static void append(struct wb_record *record)
{
    record->when = ++when;
    record->flags = odd.flags;
    pthread_mutex_lock(&catalog->lock);
    ck_assert_int_eq(wb_log_append_locked(catalog, record, NULL, 0), 0);
    pthread_mutex_unlock(&catalog->lock);
}

static struct wb_slot absent(const char *name)
{
    return (struct wb_slot){.name = name, .name_length = (uint8_t)strlen(name)};
}

static struct wb_slot lost(const char *name, uint64_t file)
{
    return (struct wb_slot){.name = name, .name_length = (uint8_t)strlen(name), .present = 1, .unbind = WB_UNBIND_KEPT,
                            .object = {file, 1}, .attrs = {.mode = 0100644, .nlink = odd.nlink}};
}

static void created(const char *name)
{
    append(&(struct wb_record){.type = WB_REC_NAME, .op = WB_OP_CREATE, .name = {.count = 1, .slots = {absent(name)}}});
}

static void removed(const char *name, uint64_t file)
{
    append(&(struct wb_record){.type = WB_REC_NAME, .op = WB_OP_UNLINK,
                               .name = {.count = 1, .slots = {lost(name, file)}}});
}

static void changed(uint64_t file)
{
    append(&(struct wb_record){.type = WB_REC_ATTR, .op = WB_OP_CHMOD,
                               .attr = {.object = {file, 1}, .attrs = {.mode = 0100600, .nlink = 1}}});
}

/* `over` has the other name, and is replaced; 0: nothing has. */
static void renamed(const char *from, uint64_t file, const char *to, uint64_t over)
{
    struct wb_record record = {.type = WB_REC_NAME, .op = WB_OP_RENAME, .name.count = 2};
    struct wb_slot *slots = record.name.slots;

    slots[0] = lost(from, file);
    slots[0].unbind = WB_UNBIND_RENAMED;
    slots[0].to_dir = dir;
    slots[0].to_name = to;
    slots[0].to_length = (uint8_t)strlen(to);
    slots[1] = over ? lost(to, over) : absent(to);
    slots[1].from_dir = odd.from;
    slots[1].from_name = from;
    slots[1].from_length = (uint8_t)strlen(from);
    append(&record);
}

static void saved(const char *aside, uint64_t file, uint64_t over)
{
    created(aside);
    changed(file);
    renamed(aside, file, "file", over);
}

static void saved_in_place(uint64_t file, uint64_t before)
{
    renamed("file", before, "file~", 0);
    created("file");
    changed(file);
    removed("file~", before);
}

static guint found(void)
{
    ck_assert_int_eq(wb_thin_saves_find(&saves, catalog->fd, NULL, NULL), 0);
    return saves.list->len;
}

static const struct wb_thin_save *save_at(guint i)
{
    return &g_array_index(saves.list, struct wb_thin_save, i);
}

/* ---- tests ----------------------------------------------------------------------------------- */

START_TEST(those_renamed_over_another_are_found)
{
    for (uint64_t file = 11; file < 15; file++) {
        saved(file % 2 ? ".a" : ".b", file, file - 1);
        changed(99);
        created("other");
        removed("other", 99);
    }
    ck_assert_uint_eq(found(), 3);
    for (guint i = 0; i < 3; i++) {
        const struct wb_thin_save *save = save_at(i);

        /* six records each */
        ck_assert_uint_eq(save->object.ino, 13 - i);
        ck_assert_uint_eq(save->before.ino, 12 - i);
        ck_assert_str_eq(save->name, "file");
        ck_assert_int_eq(save->born, 1 + 6 * (2 - i));
        ck_assert_int_eq(save->took, save->born + 2);
        ck_assert_int_eq(save->lost, save->took + 6);
        ck_assert(!save->moved && !save->in_place);
        ck_assert_uint_eq(save->attr_records, 1);
        ck_assert_uint_eq(save->named, 2);
        ck_assert_uint_eq(wb_thin_saves_attrs(&saves, save->object)->object.ino, 13 - i);
        if (i > 0)
            ck_assert_uint_eq(save->lost_at, save_at(i - 1)->took_at);
    }
}
END_TEST

START_TEST(those_made_in_place_of_another_are_found)
{
    for (uint64_t file = 11; file < 14; file++)
        saved_in_place(file, file - 1);
    saved(".a", 14, 13);
    saved_in_place(15, 14);
    ck_assert_uint_eq(found(), 4);
    for (guint i = 0; i < 4; i++) {
        const struct wb_thin_save *save = save_at(i);

        ck_assert_uint_eq(save->object.ino, 14 - i);
        ck_assert_uint_eq(save->before.ino, 13 - i);
        ck_assert_uint_eq(save->named, i == 0 ? 3 : i == 1 ? 1 : 2);
        ck_assert(save->in_place == (i > 0) && save->moved == (i != 1));
        if (save->in_place) {
            ck_assert_int_eq(save->born, save->took + 1);
            ck_assert_int_eq(save->before_removed, save->took + 3);
        }
        if (save->moved)
            ck_assert_int_eq(save->removed, save->lost + 3);
        if (i > 0)
            ck_assert_uint_eq(save->lost_at, save_at(i - 1)->took_at);
    }
}
END_TEST

START_TEST(lookalikes_are_not_saves)
{
    saved(".a", 11, 10);
    if (_i == 0) {
        /* it was a file by another name before it was one by this */
        created("draft");
        renamed("draft", 12, ".a", 0);
        renamed(".a", 12, "file", 11);
    } else if (_i == 1) {
        /* no file had the name */
        removed("file", 11);
        created(".a");
        renamed(".a", 12, "file", 0);
    } else if (_i == 2) {
        odd.nlink = 2;
        saved(".a", 12, 11);
        odd.nlink = 1;
    } else if (_i == 3) {
        odd.from = elsewhere;
        saved(".a", 12, 11);
        odd.from = dir;
    } else if (_i == 4) {
        odd.flags = WB_RECORD_MORE;
        created(".a");
        odd.flags = 0;
        renamed(".a", 12, "file", 11);
    } else if (_i == 5) {
        /* its former content is still there */
        renamed("file", 11, "file~", 0);
        created("file");
    } else if (_i == 6) {
        /* by another name, and another file's */
        renamed("file", 11, "file~", 77);
        created("file");
        removed("file~", 11);
    } else {
        /* made anew after it had been deleted */
        removed("file", 11);
        created("file");
    }
    saved(".a", 13, 12);
    found();
    for (guint i = 0; i < saves.list->len; i++)
        ck_assert_uint_eq(save_at(i)->object.ino, 11);
}
END_TEST

START_TEST(nothing_is_found_behind_an_unknown_time)
{
    struct wb_record gap = {.type = WB_REC_GAP, .gap = {.since = 1, .reason = WB_GAP_REFUSED}};

    saved(".a", 11, 10);
    saved(".a", 12, 11);
    created(".a");
    append(&gap);
    renamed(".a", 13, "file", 12);
    saved(".a", 14, 13);
    saved(".a", 15, 14);
    ck_assert_uint_eq(found(), 1);
    ck_assert_uint_eq(save_at(0)->object.ino, 14);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("thin_saves");
    TCase *tcase = tcase_create("thin_saves");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tcase, begin, end);
    tcase_add_test(tcase, those_renamed_over_another_are_found);
    tcase_add_test(tcase, those_made_in_place_of_another_are_found);
    tcase_add_loop_test(tcase, lookalikes_are_not_saves, 0, 8);
    tcase_add_test(tcase, nothing_is_found_behind_an_unknown_time);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

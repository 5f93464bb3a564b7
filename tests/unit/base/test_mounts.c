/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The list of mounts: names with any byte, malformed lines, long ones, and sources at which libmount would look. */
#include "wayback/mounts.h"
#include <check.h>
#include <glib.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define FIRST "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"

/* The only mount of a text; valid until the next call. */
static const struct wb_listed *only(const char *text)
{
    static GPtrArray *list;

    g_clear_pointer(&list, g_ptr_array_unref);
    list = wb_listed_parse(text);
    ck_assert_uint_eq(list->len, 1);
    return list->pdata[0];
}

START_TEST(all_fields)
{
    g_autoptr(GPtrArray) list = wb_listed_parse(
        FIRST "22 21 0:44 /below /home/anna rw,nosuid master:1 propagate_from:2 - fuse.wayback /home/anna "
              "rw,user_id=1000,group_id=100\n");
    const struct wb_listed *first = list->pdata[0], *second = list->pdata[1];

    ck_assert_uint_eq(list->len, 2);
    ck_assert_int_eq(first->id, 21);
    ck_assert_int_eq(first->parent, 1);
    ck_assert_uint_eq(first->device, makedev(8, 1));
    ck_assert_str_eq(first->root, "/");
    ck_assert_str_eq(first->source, "/dev/sda1");
    ck_assert_str_eq(first->options, "rw");
    ck_assert_int_eq(second->parent, 21);
    ck_assert_uint_eq(second->device, makedev(0, 44));
    ck_assert_str_eq(second->root, "/below");
    ck_assert_str_eq(second->point, "/home/anna");
    ck_assert_str_eq(second->type, "fuse.wayback");
    ck_assert_str_eq(second->options, "rw,user_id=1000,group_id=100");
}
END_TEST

/* The kernel writes a blank, a tab, a line end and a backslash in octal, and all other bytes as they are. */
static const struct {
    const char *written, *name;
} names[] = {
    {"/a\\040b", "/a b"},
    {"/a\\011b\\012c", "/a\tb\nc"},
    {"/a\\134040b", "/a\\040b"},
    {"/a\\134134", "/a\\134"},
    {"/\\012\\04022\\04021\\0400:9\\040/\\040/etc\\040rw\\040-\\040fuse.wayback\\040x\\040rw",
     "/\n 22 21 0:9 / /etc rw - fuse.wayback x rw"},
    {"/a\\040-\\040b", "/a - b"},
    {"/a\\040(deleted)", "/a (deleted)"},
    {"/a//deleted", "/a//deleted"},
    {"/\xff\xfe\x80", "/\xff\xfe\x80"},
    {"/\x01\x1b[31m\r", "/\x01\x1b[31m\r"},
    {"/#a", "/#a"},
    {"/\"a,user_id=0", "/\"a,user_id=0"},
    /* The kernel writes none of these; they stay as they are. */
    {"/a\\", "/a\\"},
    {"/a\\04", "/a\\04"},
    {"/a\\089", "/a\\089"},
    {"/a\\x41\\n", "/a\\x41\\n"},
};

START_TEST(any_name)
{
    const char *written = names[_i].written, *name = names[_i].name;
    g_autofree char *text = g_strdup_printf("22 21 0:44 %s %s rw - fuse.wayback %s rw,user_id=7\n", written, written,
                                            written);
    const struct wb_listed *listed = only(text);
    uid_t user = 0;

    ck_assert_str_eq(listed->root, name);
    ck_assert_str_eq(listed->point, name);
    ck_assert_str_eq(listed->source, name);
    ck_assert_str_eq(listed->options, "rw,user_id=7");
    ck_assert(wb_listed_user(listed, &user));
    ck_assert_uint_eq(user, 7);
}
END_TEST

static const char *const malformed[] = {
    "", "\n", "\n\n", " ", "22", "22 ", "22 21", "22 21 0:44", "22 21 0:44 /", "22 21 0:44 / /a", "22 21 0:44 / /a rw",
    "22 21 0:44 / /a rw -", "22 21 0:44 / /a rw - ", "22 21 0:44 / /a rw - fuse.wayback", "22 21 0:44 / /a rw shared:1",
    "22 21 0:44 / /a rw - fuse.wayback /b", "22 21 44 / /a rw - fuse.wayback /b rw", "# 22 21 0:44 / /a rw - x y z",
    "x 21 0:44 / /a rw - fuse.wayback /b rw", "22 x 0:44 / /a rw - fuse.wayback /b rw", "- - - - - - - - - -",
    "/dev/sda1 / ext4 rw 0 0", "ID=1 SRC=/a TARGET=/b ROOT=/ OPTS=user_id=0",
};

START_TEST(a_malformed_line_is_left_out)
{
    g_autofree char *alone = g_strdup(malformed[_i]), *line = g_strconcat(malformed[_i], "\n", NULL);
    g_autofree char *before = g_strconcat(FIRST, line, NULL), *between = g_strconcat(FIRST, line, FIRST, NULL);
    g_autoptr(GPtrArray) none = wb_listed_parse(alone), none_either = wb_listed_parse(line);
    g_autoptr(GPtrArray) two = wb_listed_parse(between);

    ck_assert_uint_eq(none->len, 0);
    ck_assert_uint_eq(none_either->len, 0);
    ck_assert_uint_eq(two->len, 2);
    ck_assert_str_eq(only(before)->point, "/");
    ck_assert_str_eq(((const struct wb_listed *)two->pdata[1])->point, "/");
}
END_TEST

START_TEST(a_last_line_without_an_end_and_an_empty_source)
{
    ck_assert_str_eq(only("22 21 0:44 / /a rw - fuse.wayback /b rw")->options, "rw");
    ck_assert_str_eq(only("22 21 0:44 / /a rw - fuse.wayback  rw\n")->source, "");
    ck_assert_str_eq(only("22 21 0:44 / /a rw - fuse.wayback  rw\n")->options, "rw");
}
END_TEST

START_TEST(a_long_line)
{
    enum { LENGTH = 1 << 20 };
    g_autofree char *name = g_malloc(LENGTH + 1), *text = NULL;
    const struct wb_listed *listed;

    memset(name, 'x', LENGTH);
    name[0] = '/';
    name[LENGTH] = '\0';
    text = g_strdup_printf("22 21 0:44 %s %s rw - fuse.wayback %s lowerdir=%s\n", name, name, name, name);
    listed = only(text);
    ck_assert_str_eq(listed->root, name);
    ck_assert_str_eq(listed->point, name);
    ck_assert_str_eq(listed->source, name);
    ck_assert_uint_eq(strlen(listed->options), LENGTH + strlen("lowerdir="));
}
END_TEST

START_TEST(many_mounts)
{
    GString *text = g_string_new(NULL);
    g_autoptr(GPtrArray) list = NULL;

    for (int i = 0; i < 20000; i++)
        g_string_append_printf(text, "%d 21 0:%d / /mnt/%d rw - fuse.wayback /dev/root rw,user_id=%d\n", 100 + i, i, i, i);
    list = wb_listed_parse(text->str);
    g_string_free(text, TRUE);
    ck_assert_uint_eq(list->len, 20000);
    for (guint i = 0; i < list->len; i++) {
        const struct wb_listed *listed = list->pdata[i];
        uid_t user = 0;

        ck_assert_int_eq(listed->id, 100 + (int)i);
        ck_assert(wb_listed_user(listed, &user));
        ck_assert_uint_eq(user, i);
    }
}
END_TEST

/* libmount would replace it by a device; only this source is meant, not another field. */
START_TEST(dev_root_is_not_looked_for)
{
    const struct wb_listed *listed = only("22 21 0:44 /dev/root /dev/root rw - fuse.wayback /dev/root rw\n");

    ck_assert_str_eq(listed->root, "/dev/root");
    ck_assert_str_eq(listed->point, "/dev/root");
    ck_assert_str_eq(listed->source, "/dev//root");
    ck_assert_str_eq(only("22 21 0:44 / /a rw - fuse.wayback /dev/rooted rw\n")->source, "/dev/rooted");
    ck_assert_str_eq(only("22 21 0:44 / /a rw - fuse.wayback LABEL=x rw\n")->source, "LABEL=x");
}
END_TEST

static const struct {
    const char *type, *options;
    int user; /* -1: none */
} users[] = {
    {"fuse.wayback", "rw,user_id=1000,group_id=0", 1000},
    {"fuse", "user_id=0", 0},
    {"fuseblk", "rw,user_id=5", 5},
    {"fuse.wayback", "rw,user_id=4294967295", -1 /* (uid_t)-1 */},
    {"fuse.wayback", "rw", -1},
    {"fuse.wayback", "rw,user_id", -1},
    {"fuse.wayback", "rw,user_id=", -1},
    {"fuse.wayback", "rw,user_id=x", -1},
    {"fuse.wayback", "rw,user_id=-1", -1},
    {"fuse.wayback", "rw,user_id=4294967296", -1},
    {"fuse.wayback", "rw,xuser_id=0,user_id2=0,a=user_id=0", -1},
    /* A path of somebody's choice among the options. */
    {"overlay", "rw,lowerdir=/a\\054user_id=0", -1},
    {"overlay", "rw,user_id=0", -1},
    {"ext4", "rw,user_id=0", -1},
};

START_TEST(the_user_who_mounted)
{
    g_autofree char *text = g_strdup_printf("22 21 0:44 / /a user_id=3 - %s user_id=4 %s\n", users[_i].type,
                                            users[_i].options);
    uid_t user = 4711;
    bool found = wb_listed_user(only(text), &user);

    ck_assert_int_eq(found ? (int)user : -1, users[_i].user);
    ck_assert(found || user == 4711);
}
END_TEST

START_TEST(options)
{
    const struct wb_listed *listed = only("22 21 0:44 / /proc hidepid=off - proc proc rw,gid=26,hidepid=invisible,x\n");
    g_autofree char *hidepid = wb_listed_option(listed, "hidepid"), *gid = wb_listed_option(listed, "gid");
    g_autofree char *x = wb_listed_option(listed, "x"), *id = wb_listed_option(listed, "id");

    ck_assert_str_eq(hidepid, "invisible");
    ck_assert_str_eq(gid, "26");
    ck_assert_str_eq(x, "");
    ck_assert_ptr_null(id);
}
END_TEST

START_TEST(those_of_a_process)
{
    g_autoptr(GPtrArray) mine = wb_listed_mounts(), same = wb_listed_of_process(getpid());
    g_autoptr(GPtrArray) none = wb_listed_of_process(-5);
    struct stat st;

    ck_assert_ptr_nonnull(same);
    ck_assert_uint_gt(mine->len, 0);
    ck_assert_uint_eq(mine->len, same->len);
    ck_assert_ptr_null(none);
    ck_assert_int_eq(stat("/proc", &st), 0);
    for (guint i = 0; i < mine->len; i++) {
        const struct wb_listed *listed = mine->pdata[i];

        if (strcmp(listed->point, "/proc") == 0 && listed->device == st.st_dev)
            return;
    }
    ck_abort_msg("/proc is not in the list");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mounts");
    TCase *tcase = tcase_create("mounts");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test(tcase, all_fields);
    tcase_add_loop_test(tcase, any_name, 0, G_N_ELEMENTS(names));
    tcase_add_loop_test(tcase, a_malformed_line_is_left_out, 0, G_N_ELEMENTS(malformed));
    tcase_add_test(tcase, a_last_line_without_an_end_and_an_empty_source);
    tcase_add_test(tcase, a_long_line);
    tcase_add_test(tcase, many_mounts);
    tcase_add_test(tcase, dev_root_is_not_looked_for);
    tcase_add_loop_test(tcase, the_user_who_mounted, 0, G_N_ELEMENTS(users));
    tcase_add_test(tcase, options);
    tcase_add_test(tcase, those_of_a_process);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

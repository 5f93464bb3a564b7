/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Replies as a hostile mount would give them, to everything in the tools that reads one: ioctl(2) is ours here
 * (--wrap), and replies with the input. For any reply, a tool neither crashes nor reads outside of it nor loops for
 * ever, and names in it lead nowhere else.
 */
#include "fuzz_reply.h"

#include "client/api/api.h"
#include "client/control.h"
#include "common/snapshots.h"
#include "vdf/vdf.h"
#include "common/changes.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int __wrap_ioctl(int fd, unsigned long request, struct wb_control *reply);

static struct fuzz_input input;
static unsigned calls;

/* The maximum of requests for one input. */
#define CALLS_MAX 300

/* ---- the mount --------------------------------------------------------------------------------- */

/*
 * Strings and sizes in the places of honest replies, so that not every input has to find them anew: one item of the
 * requested kind, which the input then changes.
 */
static size_t honest_item(uint32_t command, uint8_t *at, struct fuzz_input *in)
{
    static const char *const names[] = {"a", "b", "d", "f", "..", "a/b", ".", ""};
    const char *name = names[fuzz_u8(in) % G_N_ELEMENTS(names)];
    size_t length = strlen(name) + 1, size;

    switch (command) {
    case WB_CONTROL_NAMES: {
        struct wb_control_name *item = (void *)at;

        *item = (struct wb_control_name){.length = (uint32_t)(size = (sizeof(*item) + length + 2 + 7) & ~(size_t)7),
                                         .mode = fuzz_u8(in) & 1 ? S_IFDIR | 0700 : S_IFREG | 0600, .spans = 1};
        memcpy(item->text, name, length);
        return size;
    }
    case WB_CONTROL_ENTRIES: {
        struct wb_control_entry *item = (void *)at;

        *item = (struct wb_control_entry){.size = (uint32_t)(size = (sizeof(*item) + length + 7) & ~(size_t)7),
                                          .mode = fuzz_u8(in) & 1 ? S_IFDIR | 0700 : S_IFREG | 0600, .ino = fuzz_u8(in) & 3};
        memcpy(item->name, name, length);
        return size;
    }
    case WB_CONTROL_SNAPSHOT_LIST:
    case WB_CONTROL_SNAPSHOT_CREATE: {
        struct wb_control_snapshot *item = (void *)at;

        *item = (struct wb_control_snapshot){.size = (uint32_t)(size = (sizeof(*item) + length + 2 + 7) & ~(size_t)7),
                                             .text = (uint16_t)length, .path = (uint16_t)length};
        memcpy(item->strings, name, length);
        return size;
    }
    case WB_CONTROL_CHANGES: {
        struct wb_control_change *item = (void *)at;

        *item = (struct wb_control_change){.size = (uint32_t)(size = (sizeof(*item) + length + 7) & ~(size_t)7),
                                           .flags = fuzz_u8(in) & 1, .path = 1, .op_name = 1, .actor = fuzz_u8(in)};
        memcpy(item->strings + 1, name, length);
        return size;
    }
    case WB_CONTROL_USAGE: {
        struct wb_control_usage_dir *item = (void *)at;
        struct wb_control_usage_program *program = (void *)at;
        uint32_t kind = fuzz_u8(in) & 3;

        if (kind >= WB_CONTROL_USAGE_ITEM_PROGRAM) {
            size = (sizeof(*program) + length + 7) & ~(size_t)7;
            *program = (struct wb_control_usage_program){.size = (uint32_t)size, .kind = kind, .bytes = fuzz_u8(in)};
            memcpy(program->name, name, length);
            return size;
        }
        *item = (struct wb_control_usage_dir){.size = (uint32_t)(size = (sizeof(*item) + length + 7) & ~(size_t)7),
                                              .kind = kind, .bytes = fuzz_u8(in), .newest = fuzz_u8(in)};
        memcpy(item->path, name, length);
        return size;
    }
    case WB_CONTROL_VERSIONS: {
        struct wb_control_version *item = (void *)at;

        g_strlcpy(item->name, name, sizeof(item->name));
        g_strlcpy(item->op_name, "rename", sizeof(item->op_name));
        item->flags = fuzz_u8(in) & 3;
        return sizeof(*item);
    }
    default:
        return 0;
    }
}

int __wrap_ioctl(int fd, unsigned long request, struct wb_control *reply)
{
    uint8_t how = fuzz_u8(&input);
    unsigned changes = fuzz_u8(&input) % 8;
    size_t used = 0, size;

    if (request != WB_CONTROL_IOCTL || calls++ > CALLS_MAX || input.left == 0) {
        errno = ENOTTY;
        return -1;
    }
    memset(reply->data, 0, sizeof(reply->data));
    reply->count = fuzz_u8(&input) % 12;
    reply->flags = fuzz_u8(&input) & ~WB_CONTROL_CHANGES_BUILDING; /* tools wait for that */
    reply->cursor = how & 2 ? reply->cursor + reply->count : fuzz_size(&input);
    if (how & 4)
        fuzz_take(&input, reply->data, sizeof(reply->data));
    used = reply->command == WB_CONTROL_USAGE ? sizeof(struct wb_control_usage) : 0;
    for (unsigned i = 0; !(how & 4) && i < reply->count && used + 1600 < sizeof(reply->data); i++) {
        size = honest_item(reply->command, reply->data + used, &input);
        used += size;
    }
    if (reply->command == WB_CONTROL_HELLO && how & 8)
        memcpy(reply->data, "/source", 8);
    for (; changes > 0 && how & 16; changes--)
        reply->data[fuzz_u16(&input) % (used ? used : sizeof(reply->data))] = fuzz_u8(&input);
    if (how & 32)
        reply->count = (uint32_t)fuzz_size(&input);
    if ((how & 192) == 192)
        reply->command = fuzz_u8(&input);
    return 0;
}

/* ---- callers ----------------------------------------------------------------------------------- */

void fuzz_expect_name(const char *name)
{
    g_assert_true(*name && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0);
}

static void ask_batch(int fd)
{
    struct wb_erase_batch *batch = wb_erase_batch_new(fd);
    const struct wb_control_erased_name *names;

    for (unsigned i = 0; i < 5; i++)
        wb_erase_batch_add(batch, "d/f", WB_CONTROL_ERASE_PRESENT);
    if (wb_erase_batch_carry_out(batch, &names) == 0)
        for (unsigned i = 0; i < 5; i++)
            g_assert_cmpuint(names[i].error, <, 4096);
    wb_erase_batch_free(batch);
}

static void ask_small(int fd)
{
    static struct wb_control_hello hello;
    static struct wb_control_identity identity;
    struct wb_control_erased erased;

    if (wb_request_hello(fd, &hello) == 0)
        g_assert_cmpuint(strlen(hello.source), <, sizeof(hello.source));
    if (wb_request_identify(fd, "a", &identity) == 0) {
        g_autofree char *around = g_strdup_printf("/%s/", identity.path);

        g_assert_null(strstr(around, "/../"));
        g_assert_cmpint(identity.path[0], !=, '/');
    }
    wb_request_restore(fd, "a", "b");
    wb_request_erase(fd, "a", 0, 0, &erased);
    ask_batch(fd);
}

static void ask_names(int fd)
{
    _cleanup_name_walk_ struct wb_name_walk *walk = wb_name_walk_new(fd, "", "", WB_CONTROL_NAMES_SPANS);
    const struct wb_control_name *name;

    for (unsigned n = 0; n < 1000 && wb_name_walk_next(walk, &name) == 0; n++) {
        fuzz_expect_name(name->text);
        g_assert_cmpuint(strlen(wb_name_to(name)) + strlen(wb_name_command(name)), <, WB_CONTROL_DATA_MAX);
    }
}

static void ask_snapshots(int fd)
{
    g_autofree struct wb_control_snapshot *made = NULL;
    g_autoptr(GPtrArray) all = NULL;
    g_auto(GStrv) files = NULL;
    uint64_t unnamed;

    if (wb_request_snapshot_list(fd, "", NULL, &all) == 0) {
        g_autofree char *similar = wb_snapshot_similar(all, "before");

        for (guint i = 0; i < all->len; i++)
            g_assert_cmpuint(strlen(wb_snapshot_name(all->pdata[i])) + strlen(wb_snapshot_text(all->pdata[i])) +
                                 strlen(wb_snapshot_path(all->pdata[i])), <, 3 * WB_CONTROL_DATA_MAX);
    }
    if (wb_request_snapshot_create(fd, "", "new", "", &made) == 0)
        g_assert_cmpuint(strlen(wb_snapshot_path(made)), <, WB_CONTROL_DATA_MAX);
    wb_request_snapshot_files(fd, "new", &files, &unnamed);
}

static void ask_changes(struct wb_mount *mount)
{
    struct wb_change_walk_options options = {0};
    struct wb_change_walk *walk = wb_change_walk_new(mount, "", &options);
    struct wb_change change;

    for (unsigned n = 0; n < 1000 && wb_change_walk_next(walk, &change) == 0; n++) {
        g_autofree struct wb_kept_change *kept = wb_change_keep(&change);

        g_assert_cmpstr(kept->change.path, ==, change.path);
        g_assert_cmpstr(kept->change.command, ==, change.command);
    }
    wb_change_walk_free(walk);
}

static void ask_usage(int fd)
{
    struct show_usage show = {.given = "a", .path = "a", .root_fd = -1, .bytes = true, .has_dirs = true, .may_free = true};
    FILE *nowhere = fopen("/dev/null", "w");
    struct usage usage = {0};

    if (usage_read(fd, "a", 1, 10, &usage) == 0) {
        for (guint i = 0; i < usage.dirs->len; i++) {
            const struct wb_control_usage_dir *dir = usage.dirs->pdata[i];
            g_autofree char *around = g_strdup_printf("/%s/", dir->path);

            g_assert_null(strstr(around, "/../"));
        }
        show_usage_text(nowhere, &usage, &show);
        show_usage_json(&usage, &show);
    }
    usage_clear(&usage);
    fclose(nowhere);
}

/* The library for programs, whose texts must end and whose iterations must, too. */
static void ask_library(struct wb_mount *mount)
{
    struct wb_client client = {.mount = mount, .point = (char *)"/"};
    struct wb_usage_info usage = {.size = sizeof(usage)};
    struct wb_client_info info = {.size = sizeof(info)};
    struct wb_restore_options dry = {.size = sizeof(dry), .flags = WB_RESTORE_DRY_RUN};
    const struct wb_snapshot_info *snapshot;
    const struct wb_version_info *version;
    struct wb_snapshot_iter *snapshots;
    struct wb_version_iter *versions;
    size_t length = 0;
    int64_t when;

    wb_client_info(&client, &info);
    if (wb_version_begin(&client, "/a", 0, 0, &versions) == 0)
        for (unsigned n = 0; n < 1000 && wb_version_next(versions, &version) == 0; n++)
            length = MAX(length, strlen(version->operation) + strlen(version->command) + strlen(version->name) +
                                     strlen(version->other) + strlen(version->detail));
    wb_version_end(versions);
    if (wb_snapshots_begin(&client, NULL, &snapshots) == 0)
        while (wb_snapshots_next(snapshots, &snapshot) == 0)
            length = MAX(length, strlen(snapshot->name) + strlen(snapshot->text) + strlen(snapshot->path));
    wb_snapshots_end(snapshots);
    g_assert_cmpuint(length, <, 3 * WB_CONTROL_DATA_MAX);
    wb_time_resolve(&client, "/a", "before", &when);
    wb_time_resolve(&client, "/a", "~2", &when);
    wb_usage_get(&client, "/a", &usage);
    wb_undo(&client, "/d/a", &dry, NULL);
    g_assert_cmpuint(strlen(wb_error_text()), <, 2 * WB_CONTROL_PATH_MAX);
}

/* A directory to walk in: the entries that a hostile mount shows there do not matter here. */
static int make_tree(void)
{
    static const char *const directories[] = {"d", "e", "d/d", "e/d", "d/d/d", "e/d/d"};
    static const char *const files[] = {"a", "d/a", "d/f", "e/a", "e/f"};
    int fd = open(fuzz_directory(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), null;

    for (unsigned i = 0; i < G_N_ELEMENTS(directories); i++)
        if (mkdirat(fd, directories[i], 0700) < 0)
            abort();
    for (unsigned i = 0; i < G_N_ELEMENTS(files); i++)
        close(openat(fd, files[i], O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    /* The messages and the JSON of the tools. */
    null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    close(null);
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    struct wb_mount mount = {.point = (char *)"/", .prefix = (char *)"", .at_sign = '@'};
    uint8_t which;

    if (fd < 0)
        fd = make_tree();
    input = (struct fuzz_input){data, size};
    calls = 0;
    mount.root_fd = fd;
    which = fuzz_u8(&input) % 8;
    if (which == 0)
        ask_small(fd);
    else if (which <= 2)
        fuzz_ask_versions(fd, which == 2);
    else if (which == 3)
        ask_names(fd);
    else if (which == 4)
        ask_snapshots(fd);
    else if (which == 5)
        ask_changes(&mount);
    else if (which == 6)
        fuzz_compare(&mount);
    else
        ask_usage(fd);
    ask_library(&mount);
    return 0;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "service/settings.h"

#include "client/fd.h"
#include "client/path.h"
#include "common/cli.h"
#include "common/mount.h"
#include "service/program.h"
#include "wayback/move.h"
#include "wayback/server.h"
#include <errno.h>
#include <fcntl.h>
#include <json-glib/json-glib.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONFIG_NAME "wayback.conf"
/* A longer file is refused by the daemon, too. */
#define SIZE_MAX_TEXT (1 << 20)

/* ---- finding the file ------------------------------------------------------------------------------------ */

/* The store behind a mount, by the descriptors of its daemon. 0 or -errno; -EBADMSG: the server is not believed. */
static int open_mounted(int root_fd, const struct wb_control_hello *hello, struct wb_settings *settings)
{
    _cleanup_fd_ int tree_fd = -1, store_fd = -1;
    char link[WB_FD_PATH_MAX];
    int r = wb_server_open(root_fd, hello, &tree_fd, &store_fd);

    if (r < 0)
        return r;
    settings->tree = g_strdup(hello->source);
    settings->store = store_fd >= 0 ? g_file_read_link(wb_fd_proc_path(store_fd, link), NULL)
                                    : g_build_filename(hello->source, ".wayback", NULL);
    settings->store_fd = store_fd >= 0 ? openat(store_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                                       : openat(tree_fd, ".wayback", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    settings->daemon = (pid_t)hello->pid;
    return settings->store_fd < 0 || !settings->store ? -errno : 0;
}

/* The store of a tree that is not mounted. 0 or -errno; -ENOENT: there is none. */
static int open_unmounted(const char *path, struct wb_settings *settings, struct wb_error *why)
{
    g_autofree struct wb_move_result *where = g_new0(struct wb_move_result, 1);
    _cleanup_fd_ int fd = -1;
    int r;

    settings->tree = wb_tree_above(path);
    if (!settings->tree)
        return -ENOENT;
    r = wb_store_where(settings->tree, NULL, where, why);
    if (r < 0)
        return r;
    settings->store = g_strdup(where->from);
    /* The owner of the tree may have put a link in its place since. */
    fd = wb_open_named_dir(settings->store);
    if (fd < 0)
        return fd;
    settings->store_fd = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return settings->store_fd < 0 ? -errno : 0;
}

/* "" if there is no file; NULL and errno on failure. */
static char *read_text(int store_fd)
{
    _cleanup_fd_ int fd = openat(store_fd, CONFIG_NAME, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    g_autofree char *text = g_malloc(SIZE_MAX_TEXT + 2);
    struct stat st;
    ssize_t length;

    if (fd < 0)
        return errno == ENOENT ? g_strdup("") : NULL;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        errno = EINVAL;
        return NULL;
    }
    length = wb_fd_read(fd, text, SIZE_MAX_TEXT + 1, 0);
    if (length < 0 || length > SIZE_MAX_TEXT) {
        errno = length < 0 ? (int)-length : EFBIG;
        return NULL;
    }
    text[length] = '\0';
    return g_strndup(text, (gsize)length);
}

static int fail_open(const char *given, int error, const char *reason)
{
    if (*reason)
        return wb_cli_fail(given, "%s", reason);
    if (error == -EBADMSG)
        return wb_cli_fail(given, WB_SERVER_NOT_BELIEVED);
    if (error == -EPERM || error == -EACCES)
        return wb_cli_fail(given, "its settings are for root and the user who mounted it; run this as that user");
    if (error == -ENOENT)
        return wb_cli_fail(given, "no history was found here; `wayback enable` creates one");
    return wb_cli_fail(given, "cannot open its store (%s)", wb_errno_text(-error));
}

int wb_settings_open(const char *given, struct wb_settings *ret)
{
    g_autofree char *path = wb_path_absolute(given);
    g_autofree struct wb_control_hello *hello = g_new0(struct wb_control_hello, 1);
    g_autoptr(GPtrArray) list = NULL;
    struct wb_error why = {""};
    _cleanup_fd_ int root_fd = -1;
    const char *rest;
    int r;

    *ret = (struct wb_settings){.store_fd = -1};
    if (!path)
        return wb_cli_fail(given, "%s", wb_path_error_text(errno));
    r = wb_mount_of_tree(given, hello);
    root_fd = r;
    if (r < 0) {
        struct wb_mount *mount;

        list = wb_listed_mounts();
        mount = wb_mount_of_source(list, path, &rest);
        if (mount) {
            *hello = mount->hello;
            root_fd = r = dup(mount->root_fd);
        }
        wb_mount_free(mount);
    }
    r = r >= 0 ? open_mounted(root_fd, hello, ret) : open_unmounted(path, ret, &why);
    if (r < 0)
        return fail_open(given, r, why.text);
    ret->path = g_build_filename(ret->store, CONFIG_NAME, NULL);
    ret->text = read_text(ret->store_fd);
    if (!ret->text)
        return wb_cli_fail(ret->path, "%s", wb_errno_text(errno));
    return 0;
}

void wb_settings_clear(struct wb_settings *settings)
{
    if (settings->store_fd >= 0)
        close(settings->store_fd);
    g_free(settings->tree);
    g_free(settings->store);
    g_free(settings->path);
    g_free(settings->text);
    *settings = (struct wb_settings){.store_fd = -1};
}

/* ---- checking -------------------------------------------------------------------------------------------- */

/* The daemon names the file as it was given: its standard input. */
#define AS_INPUT "/proc/self/fd/0"

static JsonObject *parse(JsonParser *parser, const char *json)
{
    JsonNode *root;

    if (!json_parser_load_from_data(parser, json, -1, NULL))
        return NULL;
    root = json_parser_get_root(parser);
    return root && JSON_NODE_HOLDS_OBJECT(root) ? json_node_get_object(root) : NULL;
}

/* NULL: there is no such array. */
static JsonArray *array_of(JsonObject *object, const char *name)
{
    return object && json_object_has_member(object, name) ? json_object_get_array_member(object, name) : NULL;
}

static void add_mistakes(JsonObject *object, const char *path, GPtrArray *mistakes)
{
    JsonArray *list = array_of(object, "mistakes");

    for (guint i = 0; list && i < json_array_get_length(list); i++) {
        const char *line = json_array_get_string_element(list, i);

        if (line && g_str_has_prefix(line, AS_INPUT))
            g_ptr_array_add(mistakes, g_strconcat(path, line + strlen(AS_INPUT), NULL));
        else
            g_ptr_array_add(mistakes, g_strdup(line ? line : ""));
    }
}

bool wb_settings_check(const char *text, const char *path, GPtrArray *mistakes, char **ret_json)
{
    g_autoptr(JsonParser) parser = json_parser_new();
    g_autofree char *daemon = wb_private_daemon(), *output = NULL;
    const char *arguments[] = {daemon, "--check-config", "--json", AS_INPUT, NULL};
    _cleanup_fd_ int fd = memfd_create("wayback.conf", MFD_CLOEXEC);
    guint before = mistakes->len;
    JsonObject *object;
    int status;

    if (ret_json)
        *ret_json = NULL;
    if (!daemon || fd < 0 || wb_fd_write(fd, text, strlen(text), 0) < 0) {
        g_ptr_array_add(mistakes, g_strdup("the program wayback is missing, which checks settings"));
        return false;
    }
    status = wb_program_run(arguments, fd, &output);
    object = parse(parser, output);
    if (object)
        add_mistakes(object, path, mistakes);
    if (status == 0 && object && mistakes->len == before) {
        if (ret_json)
            *ret_json = g_steal_pointer(&output);
        return true;
    }
    if (mistakes->len == before)
        g_ptr_array_add(mistakes, g_strdup_printf("%s: cannot be checked: %s", path, output));
    return false;
}

/* ---- keys ------------------------------------------------------------------------------------------------ */

void wb_setting_free(struct wb_setting *setting)
{
    if (!setting)
        return;
    g_free(setting->section);
    g_free(setting->key);
    g_free(setting->value);
    g_free(setting->initial);
    g_free(setting);
}

static char *member(JsonObject *object, const char *name)
{
    JsonNode *node = json_object_get_member(object, name);

    return node && JSON_NODE_HOLDS_VALUE(node) ? json_node_dup_string(node) : NULL;
}

static struct wb_setting *setting_of(JsonObject *object)
{
    struct wb_setting *setting = g_new0(struct wb_setting, 1);

    setting->section = member(object, "section");
    setting->key = member(object, "key");
    setting->value = member(object, "value");
    setting->initial = member(object, "default");
    setting->is_set = json_object_has_member(object, "line");
    return setting;
}

static bool is_named(const struct wb_setting *setting, const char *name)
{
    g_autofree char *full = g_strdup_printf("%s.%s", setting->section, setting->key);

    if (strcmp(name, full) == 0)
        return true;
    return !g_str_has_prefix(setting->section, "path") && strcmp(name, setting->key) == 0;
}

typedef bool (*setting_function)(struct wb_setting *setting, void *data);

/* Calls `function` for each key, which returns true to keep the setting and stop. */
static void each(const char *json, setting_function function, void *data)
{
    g_autoptr(JsonParser) parser = json_parser_new();
    JsonObject *object = parse(parser, json);
    JsonArray *keys = array_of(object, "keys");

    for (guint i = 0; keys && i < json_array_get_length(keys); i++) {
        struct wb_setting *setting = setting_of(json_array_get_object_element(keys, i));

        if (function(setting, data))
            return;
        wb_setting_free(setting);
    }
}

struct search {
    const char *name;
    struct wb_setting *found;
};

static bool is_searched(struct wb_setting *setting, void *data)
{
    struct search *search = data;

    if (!is_named(setting, search->name))
        return false;
    search->found = setting;
    return true;
}

struct wb_setting *wb_settings_find(const char *json, const char *name)
{
    struct search search = {name, NULL};

    each(json, is_searched, &search);
    return search.found;
}

static bool add_name(struct wb_setting *setting, void *data)
{
    GString *names = data;

    if (!g_str_has_prefix(setting->section, "path"))
        g_string_append_printf(names, "%s%s", names->len > 0 ? ", " : "", setting->key);
    return false;
}

char *wb_settings_names(const char *json)
{
    GString *names = g_string_new(NULL);

    each(json, add_name, names);
    return g_string_free(names, FALSE);
}

/* ---- changing the text ----------------------------------------------------------------------------------- */

/* The section that a line begins, without brackets; g_free. NULL: it begins none. */
static char *section_of(const char *line)
{
    g_autofree char *text = g_strstrip(g_strdup(line));
    size_t length = strlen(text);

    if (length < 2 || text[0] != '[' || text[length - 1] != ']')
        return NULL;
    text[length - 1] = '\0';
    return g_strdup(g_strstrip(text + 1));
}

/* Whether the line sets `key`; with `mark`, whether it is the sample of it: the same behind "#". */
static bool is_line_of(const char *line, const char *key, bool mark)
{
    size_t length = strlen(key);

    line += strspn(line, " \t");
    if (mark && *line++ != '#')
        return false;
    if (strncmp(line, key, length) != 0)
        return false;
    line += length;
    return line[strspn(line, " \t")] == '=';
}

struct position {
    int line;   /* that sets the key, -1: none                     */
    int behind; /* a new line goes behind this one; -1: no section */
};

/* Samples after a commented section are of that one. */
static struct position find_line(char **lines, const char *section, const char *key)
{
    struct position found = {-1, -1};
    bool inside = false, sampled = false, has_sample = false;

    for (int i = 0; lines[i]; i++) {
        g_autofree char *begins = section_of(lines[i]);
        const char *at = lines[i] + strspn(lines[i], " \t");

        if (begins) {
            inside = strcmp(begins, section) == 0;
            sampled = inside;
            if (inside && !has_sample)
                found.behind = i;
        } else if (inside && is_line_of(lines[i], key, false)) {
            found.line = i;
            return found;
        } else if (inside && g_str_has_prefix(at, "#[")) {
            sampled = false;
        } else if (inside && sampled && is_line_of(lines[i], key, true)) {
            found.behind = i;
            has_sample = true;
        } else if (inside && !has_sample && *at && *at != '#') {
            found.behind = i;
        }
    }
    return found;
}

char *wb_settings_change(const char *text, const char *section, const char *key, const char *value)
{
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    struct position found = find_line(lines, section, key);
    GString *result = g_string_new(NULL);

    for (int i = 0; lines[i]; i++) {
        bool last = !lines[i + 1];

        if (i != found.line)
            g_string_append(result, lines[i]);
        else if (value)
            g_string_append_printf(result, "%s = %s", key, value);
        if (found.line < 0 && value && i == found.behind)
            g_string_append_printf(result, "\n%s = %s", key, value);
        if (!last && (i != found.line || value))
            g_string_append_c(result, '\n');
    }
    if (found.line < 0 && found.behind < 0 && value) {
        if (result->len > 0 && result->str[result->len - 1] != '\n')
            g_string_append_c(result, '\n');
        g_string_append_printf(result, "%s[%s]\n%s = %s\n", result->len > 0 ? "\n" : "", section, key, value);
    }
    return g_string_free(result, FALSE);
}

char *wb_settings_with(const char *text, const char *path, const char *const *pairs)
{
    g_autoptr(GPtrArray) mistakes = g_ptr_array_new_with_free_func(g_free);
    g_autofree char *now = g_strdup(text);

    for (; pairs[0]; pairs += 2) {
        char *next = pairs[1] ? wb_settings_change(now, "history", pairs[0], pairs[1]) : NULL;

        if (next) {
            g_free(now);
            now = next;
        }
    }
    if (wb_settings_check(now, path, mistakes, NULL))
        return g_steal_pointer(&now);
    for (guint i = 0; i < mistakes->len; i++)
        wb_cli_fail(NULL, "%s", (const char *)mistakes->pdata[i]);
    return NULL;
}

/* ---- applying -------------------------------------------------------------------------------------------- */

/* A daemon in the foreground of a terminal ends on SIGHUP; it looks at the file every few seconds, as all do. */
static bool has_terminal(pid_t pid)
{
    g_autofree char *link = g_strdup_printf("/proc/%d/fd/0", (int)pid), *target = g_file_read_link(link, NULL);

    return !target || g_str_has_prefix(target, "/dev/pts/") || g_str_has_prefix(target, "/dev/tty") ||
           g_str_has_prefix(target, "/dev/console");
}

/* Written beside it, synced, and renamed: owner and mode stay. 0 or -errno. */
static int replace(int store_fd, const char *text)
{
    g_autofree char *name = g_strdup_printf(CONFIG_NAME ".%d.new", (int)getpid());
    mode_t mode = 0600;
    struct stat st;
    int fd, r = 0;

    unlinkat(store_fd, name, 0);
    fd = openat(store_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    if (fstatat(store_fd, CONFIG_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode)) {
        mode = st.st_mode & 07777;
        if ((st.st_uid != geteuid() || st.st_gid != getegid()) && fchown(fd, st.st_uid, st.st_gid) < 0)
            r = -errno;
    }
    if (r == 0)
        r = wb_fd_write(fd, text, strlen(text), 0) < 0 ? -EIO : 0;
    if (r == 0 && (fchmod(fd, mode) < 0 || fsync(fd) < 0))
        r = -errno;
    close(fd);
    if (r == 0 && renameat(store_fd, name, store_fd, CONFIG_NAME) < 0)
        r = -errno;
    if (r < 0)
        unlinkat(store_fd, name, 0);
    else
        fsync(store_fd);
    return r;
}

/* Whether it still has the text that was read. Another command waits for the lock meanwhile. */
static bool is_unchanged(const struct wb_settings *settings)
{
    g_autofree char *now = NULL;

    while (flock(settings->store_fd, LOCK_EX) < 0 && errno == EINTR)
        continue;
    now = read_text(settings->store_fd);
    return now && strcmp(now, settings->text) == 0;
}

int wb_settings_write(struct wb_settings *settings, const char *text)
{
    bool unchanged = is_unchanged(settings);
    int r = unchanged ? replace(settings->store_fd, text) : 0;

    flock(settings->store_fd, LOCK_UN);
    if (!unchanged)
        return wb_cli_fail(settings->path, "it was changed meanwhile by another program; nothing was changed, try "
                           "again");
    if (r < 0)
        return wb_cli_fail(settings->path, "cannot be written (%s); nothing was changed", wb_errno_text(-r));
    g_free(settings->text);
    settings->text = g_strdup(text);
    if (settings->daemon > 0 && !has_terminal(settings->daemon))
        kill(settings->daemon, SIGHUP);
    return 0;
}

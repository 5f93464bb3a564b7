/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The requests of <wayback/control.h>, and names with times in them, as a hostile program would make them: through the
 * daemon's own operations, with libfuse in between and no kernel. The history they ask about is hostile as well.
 */
#include "fuzz_tree.h"

#include "daemon/control/control.h"
#include "daemon/core/session.h"
#include "daemon/live/ops.h"
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* The tree is made anew after so many inputs: requests change it. */
#define INPUTS_A_TREE 32
#define HISTORY 700

enum { UNIQUE_INIT = 2, UNIQUE_OPENDIR = 4, UNIQUE_OTHER = 6, UNIQUE_ASKED = 8 };

static struct wb_session *session;
static struct wb_options options;
static uint64_t handle;
static int sockets[2];
static struct wb_control control; /* the request that was made last */

/* ---- between the daemon and libfuse ---------------------------------------------------------- */

/* Whatever the history, the reply about it is one that tools accept. */
static void check_reply(const struct fuse_out_header *head)
{
    const struct fuse_ioctl_out *out = (const void *)(head + 1);

    if (head->unique == UNIQUE_ASKED && head->error == 0 && head->len == sizeof(*head) + sizeof(*out) + sizeof(control))
        g_assert_cmpint(wb_control_check(control.command, control.cursor, (const void *)(out + 1)), ==, 0);
}

/* In place of /dev/fuse: a pair of sockets. Reads the daemon's replies since the last call; returns their number. */
static unsigned take_replies(void)
{
    static uint8_t message[65536] __attribute__((aligned(16)));
    const struct fuse_out_header *head = (const void *)message;
    unsigned count = 0;
    ssize_t length;

    while ((length = recv(sockets[0], message, sizeof(message), MSG_DONTWAIT)) >= (ssize_t)sizeof(*head)) {
        g_assert_cmpint(length, ==, head->len);
        if (head->unique == 0) /* asks the kernel to forget something */
            continue;
        count++;
        check_reply(head);
        if (head->unique == UNIQUE_OPENDIR && head->error == 0)
            handle = ((const struct fuse_open_out *)(const void *)(head + 1))->fh;
    }
    return count;
}

static void send_request(uint32_t opcode, uint64_t unique, uint32_t uid, const void *first, size_t first_length,
                         const void *second, size_t second_length)
{
    static uint8_t message[sizeof(struct fuse_in_header) + 65536] __attribute__((aligned(16)));
    struct fuse_in_header *head = (void *)message;
    struct fuse_buf buf = {.mem = message};

    *head = (struct fuse_in_header){.opcode = opcode, .unique = unique, .nodeid = FUSE_ROOT_ID, .uid = uid, .gid = uid,
                                    .pid = (uint32_t)getpid()};
    memcpy(message + sizeof(*head), first, first_length);
    if (second_length)
        memcpy(message + sizeof(*head) + first_length, second, second_length);
    buf.size = head->len = (uint32_t)(sizeof(*head) + first_length + second_length);
    fuse_session_process_buf(session->fuse, &buf);
    wb_control_wait(session);
    g_assert_cmpuint(take_replies(), ==, 1);
}

/* ---- a session ------------------------------------------------------------------------------- */

static void close_session(void)
{
    if (!session)
        return;
    fuse_session_destroy(session->fuse);
    session->fuse = NULL;
    close(sockets[0]);
    session = wb_session_free(session);
    wb_options_deinit(&options);
}

static void fill_history(void)
{
    static uint8_t bytes[HISTORY];
    static uint32_t state = 1;
    struct fuzz_input in = {bytes, sizeof(bytes)};
    int64_t whens[FUZZ_WHENS];

    for (size_t i = 0; i < sizeof(bytes); i++) {
        state = state * 1664525 + 1013904223;
        bytes[i] = (uint8_t)(state >> 24);
    }
    bytes[0] = 0;
    fuzz_tree_fill(&in, whens);
}

static void open_session(void)
{
    struct fuse_init_in init = {.major = 7, .minor = FUSE_KERNEL_MINOR_VERSION, .max_readahead = 131072,
                                .flags = ~(uint32_t)FUSE_INIT_EXT};
    struct fuse_open_in open_in = {0};
    g_autofree char *point = g_build_filename(fuzz_directory(), "mnt", NULL);
    char *words[] = {(char *)"wayback", (char *)"-f", NULL, NULL, NULL};
    char *fuse_words[] = {(char *)"wayback", NULL};
    struct fuse_args args = FUSE_ARGS_INIT(1, fuse_words);
    struct wb_error why = {""};
    g_autofree char *device = NULL;

    fuzz_tree_reset();
    fill_history();
    g_mkdir_with_parents(point, 0700);
    words[2] = fuzz_tree.path;
    words[3] = point;
    optind = 0;
    if (wb_options_parse(&options, 4, words, &why) < 0 || wb_session_open(&session, &options, &why) < 0) {
        fprintf(stderr, "no session: %s\n", why.text);
        abort();
    }
    session->fuse = fuse_session_new(&args, &wb_fuse_ops, sizeof(wb_fuse_ops), session);
    fuse_opt_free_args(&args);
    if (!session->fuse || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
        abort();
    for (int i = 0; i < 2; i++)
        setsockopt(sockets[i], SOL_SOCKET, i ? SO_SNDBUFFORCE : SO_RCVBUFFORCE, &(int){8 << 20}, sizeof(int));
    device = g_strdup_printf("/dev/fd/%d", sockets[1]);
    if (fuse_session_mount(session->fuse, device) != 0)
        abort();
    send_request(FUSE_INIT, UNIQUE_INIT, 0, &init, sizeof(init), NULL, 0);
    send_request(FUSE_OPENDIR, UNIQUE_OPENDIR, 0, &open_in, sizeof(open_in), NULL, 0);
}

/* ---- requests -------------------------------------------------------------------------------- */

static void take_path(struct fuzz_input *in, char path[WB_CONTROL_PATH_MAX])
{
    static const char *const parts[] = {"a", "b", "d", "x", "gone", "/", "@", "..", ".", "@now", "@1700000000", "~2", "@~1",
                                        "new", ".wayback", "header", "@snap", ".snapshot", "//", "s"};
    uint8_t n = fuzz_u8(in) & 15;

    path[0] = '\0';
    while (n-- > 0) {
        uint8_t which = fuzz_u8(in);

        if (which < 0xe0) {
            g_strlcat(path, parts[which % G_N_ELEMENTS(parts)], WB_CONTROL_PATH_MAX);
        } else {
            char any[2] = {(char)fuzz_u8(in), '\0'};

            g_strlcat(path, any, WB_CONTROL_PATH_MAX);
        }
    }
    /* Now and then one without an end. */
    if (n == 0xff && fuzz_u8(in) == 0xff)
        memset(path, 'a', WB_CONTROL_PATH_MAX);
}

/* Names as a tool packs them, of which some bytes are changed. */
static void take_names(struct fuzz_input *in)
{
    uint8_t changes = fuzz_u8(in) & 3, flags = fuzz_u8(in) & 15;
    size_t used = 0;

    memset(control.data, 0, sizeof(control.data));
    control.command = WB_CONTROL_ERASE_NAMES;
    for (control.count = 0; control.count < 8 && in->left > 0; control.count++) {
        struct wb_control_erase_name head = {.flags = flags};
        char path[WB_CONTROL_PATH_MAX];
        size_t length;

        take_path(in, path);
        length = strnlen(path, sizeof(path) - 1);
        head.size = (uint32_t)((sizeof(head) + length + 1 + 7) & ~(size_t)7);
        if (head.size > sizeof(control.data) - used)
            break;
        memcpy(control.data + used, &head, sizeof(head));
        memcpy(control.data + used + sizeof(head), path, length);
        used += head.size;
    }
    for (; changes > 0 && used > 0; changes--)
        control.data[fuzz_u16(in) % used] = fuzz_u8(in);
}

static void ask(struct fuzz_input *in, uint32_t uid)
{
    struct fuse_ioctl_in head = {.fh = handle, .flags = FUSE_IOCTL_DIR, .cmd = (uint32_t)WB_CONTROL_IOCTL,
                                 .in_size = sizeof(control), .out_size = sizeof(control)};
    uint8_t command;

    memset(&control, 0, sizeof(control));
    control.version = WB_CONTROL_VERSION;
    command = fuzz_u8(in);
    control.command = command % 22;
    control.flags = fuzz_u8(in);
    control.count = fuzz_u8(in);
    control.cursor = fuzz_size(in);
    control.since = (int64_t)fuzz_size(in);
    control.until = (int64_t)fuzz_size(in);
    take_path(in, control.path);
    if (fuzz_u8(in) & 1)
        take_path(in, control.source);
    else
        fuzz_take(in, control.data, sizeof(control.data));
    if (command >= 0xf0)
        take_names(in);
    if (fuzz_u8(in) == 0xff) {
        head.in_size = fuzz_u16(in) % sizeof(control);
        head.out_size = fuzz_u16(in);
    }
    send_request(FUSE_IOCTL, UNIQUE_ASKED, uid, &head, sizeof(head), &control, head.in_size);
}

static void look_up(struct fuzz_input *in, uint32_t uid)
{
    char path[WB_CONTROL_PATH_MAX];

    take_path(in, path);
    /* Requests that the kernel lets through. */
    path[255] = '\0';
    path[strcspn(path, "/")] = '\0';
    if (path[0] && strcmp(path, ".") != 0 && strcmp(path, "..") != 0)
        send_request(FUSE_LOOKUP, UNIQUE_OTHER, uid, path, strlen(path) + 1, NULL, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned inputs;
    struct fuzz_input in = {data, size};
    static bool registered;

    if (inputs++ % INPUTS_A_TREE == 0 || !session) {
        close_session();
        open_session();
        if (!registered)
            atexit(close_session);
        registered = true;
    }
    for (unsigned n = 0; n < 8 && in.left > 0; n++) {
        uint8_t bits = fuzz_u8(&in);

        if (bits & 1)
            look_up(&in, bits & 2 ? 1000 : 0);
        else
            ask(&in, bits & 2 ? 1000 : 0);
    }
    return 0;
}

"""A delay line: a listener that forwards connections to a server and holds all bytes back for a constant time, in both
directions. It stands for a network, so that a response takes twice the delay at least, on any machine."""

import asyncio
import contextlib
import threading


class DelayLine:
    """`with DelayLine(host, port, delay_s) as line:` listens at `line.address`."""

    def __init__(self, host, port, delay_s):
        self.server, self.delay_s = (host, port), delay_s
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        listening = asyncio.start_server(self.connected, "127.0.0.1", 0)
        listener = asyncio.run_coroutine_threadsafe(listening, self.loop).result()
        self.address = "127.0.0.1:%d" % listener.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *failure):
        asyncio.run_coroutine_threadsafe(self.cancel_all(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    async def cancel_all(self):
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def connected(self, reader, writer):
        there, back = await asyncio.open_connection(*self.server)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(self.forward(reader, back), self.forward(there, writer))

    async def forward(self, reader, writer):
        """Timers of one delay end in the order in which they began."""
        try:
            while data := await reader.read(65536):
                self.loop.call_later(self.delay_s, writer.write, data)
        except ConnectionError:
            pass
        self.loop.call_later(self.delay_s, writer.close)

"""The client for programs on asyncio."""
